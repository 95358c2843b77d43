//! Bodies, broken connections and time.

use std::time::Duration;

use proptest::prelude::*;
use tokio::net::TcpSocket;
use tokio::time::timeout;

use super::*;

/// A server whose only connection the test plays itself, and a gateway before it.
async fn by_hand() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let gateway = gateway([Route::remote(Prefix::Svc, "s", url)]).await;
    (listener, gateway)
}

/// A client that has sent this request, and the server's end of it after the head has arrived.
async fn begun(listener: &TcpListener, gateway: SocketAddr, request: &str) -> (TcpStream, TcpStream, String) {
    let mut client = connect(gateway).await;
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    let head = until(&mut server, "\r\n\r\n").await;
    (client, server, head)
}

/// Reads until this text has come.
async fn until(stream: &mut TcpStream, text: &str) -> String {
    let mut read = Vec::new();
    loop {
        let so_far = String::from_utf8_lossy(&read).into_owned();
        if so_far.contains(text) {
            return so_far;
        }
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0, "ended after {so_far:?}");
    }
}

/// Reads to the end, however it comes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let _ = stream.read_to_end(&mut read).await;
    String::from_utf8_lossy(&read).into_owned()
}

const GET: &str = "GET /svc/s/x HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn both_ways_as_it_comes() {
    let (listener, gateway) = by_hand().await;
    let request = "POST /svc/s/x HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\na\r\n";
    let mut client = connect(gateway).await;
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    until(&mut server, "\r\na\r\n").await;
    server.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nA\r\n").await.unwrap();
    until(&mut client, "\r\nA\r\n").await;
    client.write_all(b"1\r\nb\r\n0\r\n\r\n").await.unwrap();
    until(&mut server, "b\r\n0\r\n\r\n").await;
    server.write_all(b"1\r\nB\r\n0\r\n\r\n").await.unwrap();
    assert_eq!(rest(&mut client).await, "1\r\nB\r\n0\r\n\r\n");
}

#[tokio::test]
async fn a_get_may_have_a_body() {
    let mut server = Server::ok().await;
    let gateway = before(&server).await;
    let request = "GET /svc/s/x HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nab\r\n0\r\n\r\n";
    assert_eq!(status(&raw(gateway, request).await), 200);
    assert_eq!(body(&server.requests().concat()), "2\r\nab\r\n0\r\n\r\n");
}

/// A receiver that does not read holds up the sender, before the proxy holds more than its buffers do.
#[tokio::test]
async fn a_slow_side_holds_up_the_other() {
    const LIMIT: usize = 64 << 20;
    async fn blocks(stream: &mut TcpStream) -> bool {
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..(LIMIT >> 20) {
            if timeout(Duration::from_secs(1), stream.write_all(&piece)).await.is_err() {
                return true;
            }
        }
        false
    }
    let (listener, gateway) = by_hand().await;
    let (client, mut server, _) = begun(&listener, gateway, GET).await;
    server
        .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 2 * LIMIT).as_bytes())
        .await
        .unwrap();
    tokio::time::pause();
    assert!(blocks(&mut server).await, "the download went on without a reader");
    drop(client);
    let upload = format!("POST /svc/s/x HTTP/1.1\r\nHost: g\r\nContent-Length: {}\r\n\r\n", 2 * LIMIT);
    let (mut client, _server, _) = begun(&listener, gateway, &upload).await;
    assert!(blocks(&mut client).await, "the upload went on without a reader");
}

#[tokio::test]
async fn a_large_body_arrives_whole() {
    let mut server = Server::answering(|request| {
        let sent = body(request);
        let answer = format!("{} {}", sent.len(), sent.bytes().map(u64::from).sum::<u64>());
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}{}", answer.len() + sent.len(), sent)
    })
    .await;
    let gateway = before(&server).await;
    let sent: String = (0..3_000_000_u32).map(|i| char::from(b'a' + u8::try_from(i % 23).unwrap())).collect();
    let head = format!(
        "POST /svc/s/x HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        sent.len()
    );
    let (mut reader, mut writer) = connect(gateway).await.into_split();
    let message = format!("{head}{sent}");
    let mut answer = String::new();
    // The writing half stays: were it dropped, the client would have left.
    let (written, read) =
        tokio::join!(writer.write_all(message.as_bytes()), reader.read_to_string(&mut answer));
    written.and(read.map(drop)).unwrap();
    assert!(body(&answer).ends_with(&sent));
    assert!(body(&answer).starts_with(&format!("3000000 {}", sent.bytes().map(u64::from).sum::<u64>())));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_cut_answer_is_cut_for_the_client_too() {
    for (sent, complete) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\n\r\nabc", true),
    ] {
        let (listener, gateway) = by_hand().await;
        let (mut client, mut server, _) = begun(&listener, gateway, GET).await;
        server.write_all(sent.as_bytes()).await.unwrap();
        drop(server);
        let answer = rest(&mut client).await;
        // A fault that is there before the head has gone out leaves the client with nothing at all.
        assert!(status(&answer) == 200 || (answer.is_empty() && !complete), "{sent:?}: {answer:?}");
        let whole = match values(&answer, "content-length").first() {
            Some(length) => body(&answer).len() == length.parse::<usize>().unwrap(),
            None => body(&answer).ends_with("0\r\n\r\n"),
        };
        assert_eq!(whole, complete, "{sent:?}: {answer:?}");
    }
}

#[tokio::test]
async fn an_upload_that_breaks_off_is_not_completed() {
    for framing in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
        let (listener, gateway) = by_hand().await;
        let request = format!("POST /svc/s/x HTTP/1.1\r\nHost: g\r\n{framing}\r\n\r\n2\r\nab\r\n");
        let (client, mut server, head) = begun(&listener, gateway, &request).await;
        drop(client);
        let seen = head + &rest(&mut server).await;
        assert!(!body(&seen).contains("0\r\n\r\n") && body(&seen).len() < 10, "{seen:?}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_along() {
    let (listener, gateway) = by_hand().await;
    let (client, mut server, _) = begun(&listener, gateway, GET).await;
    drop(client);
    assert_eq!(rest(&mut server).await, "", "before the answer's head");

    let (mut client, mut server, _) = begun(&listener, gateway, GET).await;
    server.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await.unwrap();
    until(&mut client, "\r\na\r\n").await;
    drop(client);
    assert_eq!(rest(&mut server).await, "", "in the middle of its body");
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let proxy = Proxy::new([Route::remote(Prefix::Svc, "s", url)]).unwrap();
    let request = Request::builder().uri("/svc/s/x").header("host", "g").body(Body::empty()).unwrap();
    let target = proxy.route(&request).unwrap();
    let Reply { response, reached } = proxy.forward(&target, request, "default", None).await;
    assert_eq!((response.status().as_u16(), reached), (502, Reached::No));
    let text = axum::body::to_bytes(response.into_body(), 1000).await.unwrap();
    assert_eq!(text, r#"{"error":"service 's' cannot be reached"}"#);
}

/// A request that reached nobody because an old connection had ended goes out on a new one.
#[tokio::test]
async fn an_old_connection_is_not_taken_for_a_dead_server() {
    let mut server = Server::answering(|_| "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".into()).await;
    let gateway = before(&server).await;
    for _ in 0..3 {
        assert_eq!(status(&get(gateway, "/svc/s/x").await), 200);
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 1, "connections are kept");

    let closing = Server::answering(|_| {
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".replace("ok", "ok\r\nConnection: close")
    });
    drop(closing);
    let (listener, gateway) = by_hand().await;
    for _ in 0..3 {
        let (mut client, mut server, _) = begun(&listener, gateway, GET).await;
        server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        assert_eq!(status(&rest(&mut client).await), 200);
        drop(server);
    }
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_request_that_may_have_arrived_is_not_sent_again() {
    let (listener, gateway) = by_hand().await;
    let (mut client, server, _) = begun(&listener, gateway, GET).await;
    drop(server);
    let answer = rest(&mut client).await;
    assert_eq!(
        (status(&answer), body(&answer)),
        (502, r#"{"error":"service 's' broke off before it answered"}"#)
    );
    tokio::time::pause();
    assert!(timeout(Duration::from_secs(60), listener.accept()).await.is_err(), "it was sent again");
}

#[tokio::test]
async fn a_connection_that_does_not_open() {
    // A listener whose queue is full leaves further connections unanswered.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let _queue = [connect(address).await, connect(address).await];
    let gateway =
        gateway([Route::remote(Prefix::Svc, "s", format!("http://{address}").parse().unwrap())]).await;
    let asked = Instant::now();
    let mut client = connect(gateway).await;
    client.write_all(GET.as_bytes()).await.unwrap();
    tokio::time::pause();
    let answer = rest(&mut client).await;
    assert_eq!(
        (status(&answer), body(&answer)),
        (504, r#"{"error":"service 's' could not be reached in time"}"#)
    );
    assert!(
        asked.elapsed() >= CONNECT_TIMEOUT && asked.elapsed() < 2 * CONNECT_TIMEOUT,
        "{:?}",
        asked.elapsed()
    );
}

#[tokio::test]
async fn a_server_that_does_not_answer() {
    for (path, patience) in [
        ("x", IDLE_TIMEOUT),
        ("agentenv", LOAD_TIMEOUT),
        ("agentenv/ext/seed", LOAD_TIMEOUT),
        ("agentenvx", IDLE_TIMEOUT),
    ] {
        let (listener, gateway) = by_hand().await;
        let request = GET.replace("/x ", &format!("/{path} "));
        let asked = Instant::now();
        let (mut client, mut server, _) = begun(&listener, gateway, &request).await;
        tokio::time::pause();
        let answer = rest(&mut client).await;
        assert_eq!(
            (status(&answer), body(&answer)),
            (504, r#"{"error":"service 's' did not answer in time"}"#),
            "{path}"
        );
        assert!(
            asked.elapsed() >= patience && asked.elapsed() < patience + Duration::from_secs(60),
            "{path}: {:?}",
            asked.elapsed()
        );
        assert_eq!(rest(&mut server).await, "", "its connection is closed");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_slow_upload_is_no_silence() {
    let (listener, gateway) = by_hand().await;
    let request = "POST /svc/s/x HTTP/1.1\r\nHost: g\r\nContent-Length: 5\r\nConnection: close\r\n\r\n";
    let (mut client, mut server, _) = begun(&listener, gateway, request).await;
    tokio::time::pause();
    for piece in ["a", "b", "c", "d", "e"] {
        tokio::time::sleep(IDLE_TIMEOUT - Duration::from_secs(1)).await;
        client.write_all(piece.as_bytes()).await.unwrap();
        until(&mut server, piece).await;
    }
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    assert_eq!(status(&rest(&mut client).await), 200);
}

#[tokio::test]
async fn silence_in_an_answer() {
    let (listener, gateway) = by_hand().await;
    let (mut client, mut server, _) = begun(&listener, gateway, GET).await;
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\na").await.unwrap();
    until(&mut client, "\r\n\r\na").await;
    tokio::time::pause();
    tokio::time::sleep(IDLE_TIMEOUT - Duration::from_secs(1)).await;
    server.write_all(b"b").await.unwrap();
    until(&mut client, "b").await;
    let since = Instant::now();
    assert_eq!(rest(&mut client).await, "", "cut, not completed");
    assert!(since.elapsed() >= IDLE_TIMEOUT && since.elapsed() < IDLE_TIMEOUT + Duration::from_secs(5));
    tokio::time::resume();

    let (mut client, mut server, _) = begun(&listener, gateway, GET).await;
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await.unwrap();
    until(&mut client, "\r\na\r\n").await;
    tokio::time::pause();
    tokio::time::sleep(100 * IDLE_TIMEOUT).await;
    server.write_all(b"1\r\nb\r\n").await.unwrap();
    until(&mut client, "\r\nb\r\n").await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// However an answer is cut into pieces, and wherever it breaks off, the client has a beginning of it and knows whether
    /// that is all.
    #[test]
    fn cut_anywhere(sizes in prop::collection::vec(1..40_usize, 1..6), cut in 0..400_usize) {
        let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        let head = answer.len();
        let mut whole = String::new();
        for (i, size) in sizes.iter().enumerate() {
            let piece = char::from(b'a' + u8::try_from(i).unwrap()).to_string().repeat(*size);
            answer.extend(format!("{size:x}\r\n{piece}\r\n").bytes());
            whole.push_str(&piece);
        }
        answer.extend(b"0\r\n\r\n");
        let cut = cut.min(answer.len());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let got = runtime.block_on(async {
            let (listener, gateway) = by_hand().await;
            let (mut client, mut server, _) = begun(&listener, gateway, GET).await;
            server.write_all(&answer[..cut]).await.unwrap();
            drop(server);
            rest(&mut client).await
        });
        if cut < head {
            prop_assert_eq!(status(&got), 502);
        } else {
            let (mut text, mut complete, mut left) = (String::new(), false, body(&got));
            while let Some((size, after)) = left.split_once("\r\n") {
                let size = usize::from_str_radix(size, 16).unwrap();
                complete |= size == 0;
                let Some(piece) = after.get(..size) else { break };
                text.push_str(piece);
                left = after.get(size + 2..).unwrap_or_default();
            }
            prop_assert!(whole.starts_with(&text));
            prop_assert_eq!(complete, cut == answer.len(), "{}", got);
            if complete {
                prop_assert_eq!(text, whole);
            }
        }
    }
}
