//! Servers that cannot be reached, are silent, or fail at the handshake: their callers hear of it soon, all at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentenv_protocol::mcp::client::{ErrorKind, McpClient, OutgoingCall, Sent};
use tokio::time::Instant;

use crate::answers::call;
use crate::evil::{Evil, Seen, Step, error, polite, response, response_with, result};
use crate::links::{news, reply};

#[tokio::test]
async fn handshakes_that_fail_say_why() {
    type Answer = fn(&Seen) -> Vec<Step>;
    let modes: [(&str, Answer); 5] = [
        ("speaks version '1999-01-01'", |seen| result(seen, r#"{"protocolVersion":"1999-01-01"}"#)),
        ("without a protocol version", |seen| result(seen, r#"{"capabilities":{}}"#)),
        ("HTTP 503", |_| response_with("503 Service Unavailable", "", "")),
        ("broke before the answer", |_| vec![Step::Close]),
        ("not here", |seen| response("200 OK", "application/json", error(seen, -32601, "not here"))),
    ];
    for (words, answer) in modes {
        let evil =
            Evil::start(move |seen| if seen.method() == "initialize" { answer(seen) } else { polite(seen) })
                .await;
        let error = reply(&evil.client()).await.unwrap_err();
        assert!(error.to_string().contains(words), "{words}: {error}");
        assert_eq!((error.sent(), evil.times("tools/call")), (Sent::No, 0), "{words}");
    }
}

#[tokio::test]
async fn a_server_that_breaks_off_at_what_it_does_not_know_gets_a_session() {
    let evil =
        Evil::start(|seen| if seen.method() == "server/discover" { vec![Step::Reset] } else { polite(seen) })
            .await;
    reply(&evil.client()).await.unwrap();
}

#[tokio::test]
async fn a_server_that_swallows_what_it_does_not_know_gets_a_session() {
    let evil = Evil::start(|seen| match seen.method() {
        "server/discover" => vec![Step::Hang(Arc::default())],
        _ => polite(seen),
    })
    .await;
    let client = evil.client();
    let waiting = tokio::spawn(async move { client.call(OutgoingCall::new("t", None)).await });
    evil.asked("server/discover", 1).await;
    tokio::time::pause();
    // The clock goes on once the client has turned to the other era.
    tokio::time::sleep(Duration::from_secs(10)).await;
    tokio::time::resume();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn fifty_callers_of_a_server_that_is_down_share_one_attempt() {
    let evil = Evil::start(|_| vec![Step::Close]).await;
    let client = evil.client();
    let calls = futures_util::future::join_all((0..50).map(|_| reply(&client))).await;
    assert!(calls.iter().all(|reply| reply.as_ref().is_err_and(|error| error.sent() == Sent::No)));
    assert_eq!(evil.methods(), ["server/discover", "initialize"]);
    let address = evil.address;
    drop(evil);
    tokio::task::yield_now().await;
    let calls = futures_util::future::join_all((0..50).map(|_| reply(&client))).await;
    assert!(calls.iter().all(|reply| reply.as_ref().is_err_and(|error| error.sent() == Sent::No)));
    let _evil = Evil::again(address, polite).await;
    assert_eq!(news(&client).await, None, "it was never connected to before");
}

#[tokio::test]
async fn callers_of_a_silent_server_soon_stop_waiting_for_it() {
    let answers = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&answers);
    let evil = Evil::start(move |seen| match now.load(Ordering::Relaxed) {
        0 => vec![Step::Hang(Arc::default())],
        _ => polite(seen),
    })
    .await;
    let client = evil.client();
    let begin = || {
        let client = client.clone();
        tokio::spawn(async move { client.call(OutgoingCall::new("t", None)).await })
    };
    let first = begin();
    evil.asked("server/discover", 1).await;
    tokio::time::pause();
    let before = Instant::now();
    assert_eq!(*first.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    assert!((20..=30).contains(&before.elapsed().as_secs()), "{:?}", before.elapsed());
    // From now on there is an attempt under way, and nobody waits long for it.
    for _ in 0..3 {
        let before = Instant::now();
        let failed = futures_util::future::join_all((0..20).map(|_| begin())).await;
        for failed in failed {
            let error = failed.unwrap().unwrap_err();
            assert_eq!((error.kind(), error.sent()), (&ErrorKind::Timeout, Sent::No));
        }
        assert!(before.elapsed() <= Duration::from_millis(1_100), "{:?}", before.elapsed());
    }
    answers.store(1, Ordering::Relaxed);
    // The attempt under way is lost on the old silence; the one after it is not.
    tokio::time::sleep(Duration::from_secs(30)).await;
    tokio::time::resume();
    call(&client, "t").await.unwrap();
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_at_once() {
    use agentenv_protocol::mcp::client::{AddressFault, ClientOptions};
    let new = |url: &str| McpClient::new(&url.parse().unwrap(), ClientOptions::named("x")).map(drop);
    assert_eq!(new("https://x/mcp"), Err(AddressFault::Scheme("https".into())));
    assert_eq!(new("ftp://x/mcp"), Err(AddressFault::Scheme("ftp".into())));
    assert_eq!(new("http://u:p@x/mcp"), Err(AddressFault::Credentials));
    assert_eq!(new("http://[::1]:5/mcp?a=b#c"), Ok(()));
    assert_eq!(new("http://x"), Ok(()));
}

#[tokio::test]
async fn a_name_that_means_nothing_is_unreachable() {
    // A label this long is refused without asking anybody.
    let url = format!("http://{}:1/mcp", "x".repeat(70));
    let options = agentenv_protocol::mcp::client::ClientOptions::named("x");
    let client = McpClient::new(&url.parse().unwrap(), options);
    let error = reply(&client.unwrap()).await.unwrap_err();
    assert_eq!(error.to_string(), "the server cannot be reached: its name cannot be resolved");
}
