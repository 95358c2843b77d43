//! Targets, methods, header fields and statuses.

use axum::routing::any;
use proptest::prelude::*;

use super::*;

#[tokio::test]
async fn the_target_arrives_as_it_came() {
    let mut server = Server::ok().await;
    let gateway = gateway([
        Route::remote(Prefix::Svc, "s", server.url("/base/")),
        Route::remote(Prefix::Website, "s", server.url("")),
    ])
    .await;
    for (sent, arrives) in [
        (
            "/svc/s/a%2Fb%3F%23%00%zz;p=1//c/|{}~'é?x=1&x=2&y=%20&z=%zz&&#",
            "/base/a%2Fb%3F%23%00%zz;p=1//c/|{}~'é?x=1&x=2&y=%20&z=%zz&&",
        ),
        ("/svc/s/x?", "/base/x?"),
        ("/svc/s/a/../%2e%2e/..%2fx", "/base/a/../%2e%2e/..%2fx"),
        ("/svc/s", "/base/"),
        ("/svc/s/", "/base/"),
        ("/svc/s?q", "/base/?q"),
        ("/svc/%73/x", "/base/x"),
        ("http://elsewhere.example/svc/s/x", "/base/x"),
        ("/website/s/x", "/x"),
    ] {
        let answer = get(gateway, sent).await;
        assert_eq!((status(&answer), body(&answer)), (200, "ok"), "{sent}: {answer}");
        let seen = server.requests();
        assert_eq!(seen.len(), 1, "{sent}");
        assert_eq!(seen[0].split(' ').nth(1), Some(arrives), "{sent}");
        assert_eq!(values(&seen[0], "host"), [server.address.to_string()]);
    }
}

#[tokio::test]
async fn every_byte_arrives_or_is_refused() {
    let mut server = Server::ok().await;
    let gateway = before(&server).await;
    let mut refused = std::collections::BTreeSet::new();
    for byte in 0..=255_u8 {
        for place in ["/svc/s/a", "/svc/s/a?b"] {
            let request =
                [b"GET ", place.as_bytes(), &[byte], b"z HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n"]
                    .concat();
            let answer = raw(gateway, request).await;
            let seen = server.requests();
            // A fragment is no part of a target; what follows `#` ends at the gateway.
            let wanted = match byte {
                b'#' => place.strip_prefix("/svc/s").unwrap().to_owned(),
                _ => format!("{}{}z", &place[6..], char::from(byte)),
            };
            match seen.first() {
                Some(request) => assert_eq!(request.split(' ').nth(1), Some(wanted.as_str()), "{byte:#x}"),
                None => assert_eq!(status(&answer), 400, "{byte:#x}: {answer}"),
            }
            if seen.is_empty() {
                refused.insert(byte);
            }
        }
    }
    // What no target may hold (RFC 3986) and clients encode; a byte above 127 may be there as part of a character.
    let illegal = |byte: &u8| byte.is_ascii_control() || !byte.is_ascii() || b" \"<>`".contains(byte);
    assert_eq!(refused, (0..=255).filter(illegal).collect());
}

#[tokio::test]
async fn what_goes_nowhere() {
    let mut server = Server::ok().await;
    let gateway = gateway([
        Route::remote(Prefix::Svc, "s", server.url("/a/longer/base")),
        Route::remote(Prefix::Website, "w", server.url("")),
    ])
    .await;
    for (target, wanted, text) in [
        ("/svc/nope/x", 404, r#"{"error":"Unknown service: nope"}"#),
        ("/svc/w/x", 404, r#"{"error":"Unknown service: w"}"#),
        ("/svc/..", 404, r#"{"error":"Unknown service: .."}"#),
        ("/svc", 404, r#"{"error":"Unknown service: "}"#),
        (
            "/svc/s%2Fx",
            400,
            r#"{"error":"the service's name must not hold an encoded slash, and must be UTF-8"}"#,
        ),
        ("/svc/s/x/../../admin", 400, r#"{"error":"the path leads out of the service"}"#),
        ("/svc/s/..;/admin", 400, r#"{"error":"the path leads out of the service"}"#),
    ] {
        let answer = get(gateway, target).await;
        assert_eq!((status(&answer), body(&answer)), (wanted, text), "{target}");
        assert_eq!(values(&answer, "content-type"), ["application/json"]);
    }
    let long = format!("/svc/s/{}", "a".repeat(65_520));
    assert_eq!(status(&get(gateway, &long).await), 414);
    assert_eq!(server.requests(), [""; 0]);
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_is_refused() {
    let mut server = Server::ok().await;
    let gateway = before(&server).await;
    let smuggled = "GET /svc/s/smuggled HTTP/1.1\r\nHost: g\r\n\r\n";
    for (fields, wanted) in [
        ("Host: g\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", 501),
        ("Host: g\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n", 501),
        ("", 400),
        ("Host: g\r\nHost: h\r\n", 400),
        ("Host: g\r\nTransfer-Encoding: gzip, chunked\r\n", 400),
        ("Host: g\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Host: g\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", 400),
        ("Host: g\r\nTransfer-Encoding: xchunked\r\n", 400),
        ("Host: g\r\nContent-Length: 1\r\nContent-Length: 2\r\n", 400),
        ("Host: g\r\nContent-Length: +1\r\n", 400),
        ("Host: g\r\nContent-Length : 1\r\n", 400),
        ("Host: g\r\nX: a\r\n folded\r\n", 400),
    ] {
        let answer = raw(gateway, format!("POST /svc/s/x HTTP/1.1\r\n{fields}\r\n0\r\n\r\n{smuggled}")).await;
        assert_eq!(status(&answer), wanted, "{fields}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "the connection ends: {fields}: {answer}");
    }
    assert_eq!(server.requests(), [""; 0]);
}

/// A length beside chunks: the chunks count, the length is gone, and nothing behind them is read.
#[tokio::test]
async fn a_length_beside_chunks_smuggles_nothing() {
    for fields in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    ] {
        let mut server = Server::ok().await;
        let gateway = before(&server).await;
        let answer = raw(
            gateway,
            format!("POST /svc/s/x HTTP/1.1\r\nHost: g\r\n{fields}\r\n2\r\nab\r\n0\r\n\r\nGET /svc/s/smuggled HTTP/1.1\r\nHost: g\r\n\r\n"),
        )
        .await;
        assert!(answer.matches("HTTP/1.1").count() <= 1, "{answer}");
        let seen = server.requests();
        assert!(seen.len() <= 1 && !seen.concat().contains("smuggled"), "{seen:?}");
        assert!(seen.iter().all(|request| values(request, "content-length").is_empty()), "{seen:?}");
    }
}

/// Chunks that could end elsewhere for another reader end the connection, and nothing behind them is read.
#[tokio::test]
async fn malformed_chunks_smuggle_nothing() {
    for chunks in [
        "2;\nab\r\n0\r\n\r\n",
        "0x2\r\nab\r\n0\r\n\r\n",
        "-2\r\nab\r\n0\r\n\r\n",
        "ffffffffffffffff2\r\nab\r\n",
        "2\r\nabc\r\n0\r\n\r\n",
    ] {
        let mut server = Server::ok().await;
        let gateway = before(&server).await;
        let head = "POST /svc/s/x HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n";
        let answer =
            raw(gateway, format!("{head}{chunks}GET /svc/s/smuggled HTTP/1.1\r\nHost: g\r\n\r\n")).await;
        assert!(
            answer.matches("HTTP/1.1").count() <= 1 && matches!(status(&answer), 0 | 400),
            "{chunks:?}: {answer}"
        );
        assert_eq!(server.requests(), [""; 0], "{chunks:?}");
    }
}

#[tokio::test]
async fn methods() {
    let mut server = Server::answering(|request| match request.split(' ').next() {
        Some("HEAD") => "HTTP/1.1 200 OK\r\nContent-Length: 123\r\nX-A: b\r\n\r\n".into(),
        _ => "HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Origin: *\r\n\r\n".into(),
    })
    .await;
    let gateway = before(&server).await;
    for (method, wanted) in [
        ("GET", 204),
        ("POST", 204),
        ("PUT", 204),
        ("PATCH", 204),
        ("DELETE", 204),
        ("OPTIONS", 204),
        ("HEAD", 200),
        ("TRACE", 405),
        ("PROPFIND", 405),
    ] {
        let answer =
            raw(gateway, format!("{method} /svc/s/x HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n")).await;
        assert_eq!(status(&answer), wanted, "{method}: {answer}");
        let seen = server.requests();
        assert_eq!(
            seen.first().map(|r| r.starts_with(&format!("{method} /x "))),
            (wanted != 405).then_some(true)
        );
        match method {
            "HEAD" => assert_eq!((values(&answer, "content-length"), body(&answer)), (vec!["123"], "")),
            "TRACE" => assert_eq!(values(&answer, "allow"), [ALLOWED]),
            _ => {}
        }
    }
    let answer = raw(gateway, "CONNECT svc:1 HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n").await;
    assert!(matches!(status(&answer), 400 | 405), "{answer}");
}

#[tokio::test]
async fn fields_of_a_request() {
    let mut server = Server::ok().await;
    let gateway = before(&server).await;
    let answer = raw(
        gateway,
        "POST /svc/s/x HTTP/1.1\r\nHost: g\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Connection: keep-alive\r\nTE: trailers\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=x\r\n\
         AgentEnv-Role: boss\r\nAGENTENV_ROLE: boss\r\nagentenv.role: boss\r\nX-AgentEnv-Role: boss\r\n\
         Accept: a\r\nAccept: b\r\nCookie: c=1\r\nX-Latin: jos\u{e9}\r\nContent-Length: 3\r\n\r\nabc",
    )
    .await;
    assert_eq!(status(&answer), 200, "{answer}");
    let seen = server.requests().concat();
    let mut fields: Vec<String> =
        seen.split("\r\n").skip(1).take_while(|l| !l.is_empty()).map(str::to_ascii_lowercase).collect();
    fields.sort();
    let host = format!("host: {}", server.address);
    let mut wanted = [
        "accept: a",
        "accept: b",
        "agentenv-role: intern",
        "content-length: 3",
        "cookie: c=1",
        &host,
        "x-latin: josé",
    ];
    wanted.sort_unstable();
    assert_eq!(fields, wanted);
    assert_eq!(body(&seen), "abc");
}

#[tokio::test]
async fn fields_of_an_answer() {
    let server = Server::answering(|_| {
        "HTTP/1.1 418 Short And Stout\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nConnection: X-Secret\r\nX-Secret: 1\r\n\
         Keep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nTrailer: X-T\r\nLocation: /elsewhere\r\n\
         Content-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
            .into()
    })
    .await;
    let gateway = before(&server).await;
    let answer = get(gateway, "/svc/s/x").await;
    assert_eq!(status(&answer), 418);
    assert_eq!(values(&answer, "set-cookie"), ["a=1", "b=2"]);
    assert_eq!(values(&answer, "location"), ["/elsewhere"]);
    for gone in ["x-secret", "keep-alive", "proxy-authenticate", "trailer", "content-length"] {
        assert_eq!(values(&answer, gone), [""; 0], "{gone}");
    }
    assert_eq!(body(&answer), "2\r\nab\r\n0\r\n\r\n");
}

#[tokio::test]
async fn an_answer_in_another_protocol_is_none() {
    let server = Server::answering(|_| {
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n".into()
    });
    let answer = get(before(&server.await).await, "/svc/s/x").await;
    assert_eq!(status(&answer), 502, "{answer}");
    for garbage in [
        "SSH-2.0-x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length : 1\r\n\r\n",
    ] {
        let server = Server::answering(move |_| garbage.into()).await;
        let answer = get(before(&server).await, "/svc/s/x").await;
        assert_eq!(
            (status(&answer), body(&answer)),
            (502, r#"{"error":"service 's' broke off before it answered"}"#),
            "{garbage}"
        );
    }
}

#[tokio::test]
async fn the_gateway_asks_for_the_body_itself() {
    let mut server = Server::ok().await;
    let mut client = connect(before(&server).await).await;
    client
        .write_all(b"POST /svc/s/x HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: 3\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut interim = [0; 25];
    client.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"abc").await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(status(&answer), 200);
    let seen = server.requests().concat();
    assert_eq!((values(&seen, "expect"), body(&seen)), (vec![], "abc"));
}

#[tokio::test]
async fn a_message_needs_its_stamp() {
    let mut server = Server::ok().await;
    let proxy = Proxy::new([Route::remote(Prefix::Svc, "s", server.url("")).mcp_at("/api/mcp/")]).unwrap();
    let of = |method: &str, target: &str| {
        let request = Request::builder().method(method).uri(target).header("host", "g");
        request.body(Body::from(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)).unwrap()
    };
    for target in ["/svc/s/mcp", "/svc/s/%6dcp/", "/svc/s/api/mcp"] {
        let request = of("POST", target);
        let target = proxy.route(&request).unwrap();
        assert!(target.is_mcp());
        let reply = proxy.forward(&target, request, "intern", None).await;
        assert_eq!((reply.response.status().as_u16(), reply.reached), (500, Reached::No));
        assert_eq!(server.requests(), [""; 0]);

        let request = of("POST", "/svc/s/mcp");
        let stamped = stamp_meta(
            request.headers(),
            br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            "intern",
            Some("k"),
        )
        .unwrap();
        let reply = proxy.forward(&target, request, "intern", Some(stamped.clone())).await;
        assert_eq!((reply.response.status().as_u16(), reply.reached), (200, Reached::Yes));
        let seen = server.requests().concat();
        assert_eq!(body(&seen).as_bytes(), stamped);
        assert_eq!(values(&seen, "content-length"), [stamped.len().to_string()]);
    }
    let request = of("GET", "/svc/s/mcp");
    let target = proxy.route(&request).unwrap();
    assert_eq!(
        (target.prefix(), target.key(), target.path(), target.query()),
        (Prefix::Svc, "s", "/mcp", None)
    );
    let reply = proxy.forward(&target, request, "josé", None).await;
    assert_eq!(reply.response.status(), 200);
    assert_eq!(values(&server.requests().concat(), "agentenv-role"), ["josé"]);
    let request = of("GET", "/svc/s/x");
    let target = proxy.route(&request).unwrap();
    let reply = proxy.forward(&target, request, "a\nb: c", None).await;
    assert_eq!((reply.response.status().as_u16(), reply.reached), (400, Reached::No));
    assert_eq!(server.requests(), [""; 0]);
}

#[tokio::test]
async fn a_server_in_this_process() {
    let router = Router::new().fallback(any(async |request: Request<Body>| {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 100).await.unwrap();
        let mut fields: Vec<String> =
            head.headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
        fields.sort();
        (
            [("set-cookie", "a"), ("connection", "x")],
            format!("{} {} {fields:?} {body:?}", head.method, head.uri),
        )
    }));
    let gateway = gateway([Route::local(Prefix::Svc, "s", router)]).await;
    let answer = raw(
        gateway,
        "PUT /svc/s/a%2Fb?c=%20 HTTP/1.1\r\nHost: g\r\nagentenv_role: boss\r\nX: y\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
    )
    .await;
    assert_eq!(
        body(&answer),
        r#"PUT /a%2Fb?c=%20 ["agentenv-role: intern", "host: localhost", "x: y"] b"hi""#
    );
    assert_eq!((values(&answer, "set-cookie"), values(&answer, "connection")), (vec!["a"], vec!["close"]));
    assert_eq!(status(&get(gateway, "/svc/s/../x").await), 400);
}

#[test]
fn routes_that_cannot_be() {
    let named = |key: &str| Route::remote(Prefix::Svc, key, "http://h".parse().unwrap());
    assert!(
        Proxy::new([named("a"), Route::remote(Prefix::Website, "a", "http://[::1]:80/x/".parse().unwrap())])
            .is_ok()
    );
    let faults = Proxy::new([named(""), named("a/b"), named("ok"), named("ok")]).unwrap_err();
    assert_eq!(faults.0.len(), 3);
    assert_eq!(faults.to_string().split("; ").last(), Some("/svc/ok: there twice"));
    for text in ["https://h", "http://u:pw@h", "http://h/?q", "http://h/#f", "ftp://h", "unix:/x"] {
        let faults = Proxy::new([Route::remote(Prefix::Svc, "k", text.parse().unwrap())]).unwrap_err();
        assert_eq!(faults.0, [RouteFault::Url { prefix: Prefix::Svc, key: "k".into() }], "{text}");
        assert!(!faults.to_string().contains("pw"));
    }
}

proptest! {
    /// Whatever a client asks for, what goes out is the base's path and then the client's bytes.
    #[test]
    fn the_base_stays_in_front(rest in "(/([a-z.;%\\\\|{}é]|%2[eEfF]){0,6}){0,5}", query in prop::option::of("[a-z%&=é/?.]{0,8}")) {
        let proxy = Proxy::new([Route::remote(Prefix::Svc, "s", "http://h:1/base/path".parse().unwrap())]).unwrap();
        let target = format!("/svc/s{rest}{}", query.as_ref().map(|q| format!("?{q}")).unwrap_or_default());
        let request = Request::builder().uri(&target).header("host", "g").body(());
        let Ok(request) = request else { return Ok(()) };
        match proxy.route(&request) {
            Ok(found) => {
                let path = if rest.is_empty() { "/" } else { &rest };
                prop_assert_eq!(found.uri.path(), format!("/base/path{path}"));
                prop_assert_eq!((found.path(), found.query()), (path, query.as_deref()));
            }
            Err(refusal) => {
                prop_assert_eq!(refusal, Refusal::Escapes);
                prop_assert!(rest.contains(".."));
            }
        }
    }
}
