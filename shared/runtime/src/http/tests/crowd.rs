//! Many connections, and connections that send nothing or little.

use std::net::Ipv4Addr;

use tokio::net::TcpSocket;

use super::*;

/// Far more than the server keeps.
const MANY: usize = 200;
const PROBE: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Another host, for the server.
const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const GET_AND_KEEP: &[u8] = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";

/// Returns a connection from this address that has sent this and keeps waiting.
async fn connection(from: Ipv4Addr, to: SocketAddr, sent: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    stream.write_all(sent).await.ok();
    stream
}

/// Returns the first line of the answer to a request on a connection that stays open.
async fn kept(stream: &mut TcpStream) -> String {
    stream.write_all(GET_AND_KEEP).await.unwrap();
    let mut start = [0; 15];
    timeout(Duration::from_secs(5), stream.read_exact(&mut start)).await.expect("in time").unwrap();
    // The rest of this answer must not be taken for the next one.
    let mut rest = [0; 1024];
    let end = stream.read(&mut rest).await.unwrap();
    assert!(rest[..end].ends_with(b"ok"), "the whole answer in one piece");
    String::from_utf8(start.to_vec()).unwrap()
}

#[tokio::test]
async fn slow_connections_do_not_keep_a_probe_out() {
    let get = GET_AND_KEEP;
    for (what, sent) in [("nothing", &get[..0]), ("half a request", &get[..9]), ("all", get)] {
        for from in [PROBE, NEIGHBOUR] {
            let (address, token, _tasks) = serve(None);
            let mut held = Vec::new();
            for number in 0..MANY {
                held.push(connection(from, address, sent).await);
                if number % 20 == 0 {
                    let probe = connection(PROBE, address, b"").await;
                    let answer = exchange(probe, GET_AND_CLOSE).await;
                    assert!(answer.starts_with("HTTP/1.1 200"), "{what} from {from}: {answer:?}");
                }
            }
            token.cancel();
        }
    }
}

#[tokio::test]
async fn a_probe_before_a_burst_is_answered() {
    let (address, token, _tasks) = serve(None);
    // Nothing is accepted while this thread connects.
    let mut probe = std::net::TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut probe, GET_AND_CLOSE.as_bytes()).unwrap();
    let burst: Vec<_> = (0..MANY).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    probe.set_nonblocking(true).unwrap();
    let answer = exchange(TcpStream::from_std(probe).unwrap(), "").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
    drop(burst);
    token.cancel();
}

#[tokio::test]
async fn a_scraper_keeps_its_connection_while_a_neighbour_opens_many() {
    let (address, token, _tasks) = serve(None);
    let mut scraper = connection(PROBE, address, b"").await;
    let mut held = Vec::new();
    for _ in 0..MANY {
        held.push(connection(NEIGHBOUR, address, b"").await);
    }
    assert_eq!(kept(&mut scraper).await, "HTTP/1.1 200 OK");
    // Connections of the last moment are not closed to make room for others of the same host.
    assert_eq!(kept(held.first_mut().unwrap()).await, "HTTP/1.1 200 OK");
    tokio::time::sleep(Duration::from_millis(300)).await;
    held.push(connection(NEIGHBOUR, address, b"").await);
    // The neighbour has lost its first connection, but its last one works.
    let mut byte = [0; 1];
    let first = held.first_mut().unwrap().read(&mut byte);
    assert_eq!(timeout(Duration::from_secs(5), first).await.expect("closed").unwrap_or(0), 0);
    assert_eq!(kept(held.last_mut().unwrap()).await, "HTTP/1.1 200 OK");
    token.cancel();
}

#[tokio::test]
async fn unfinished_handshakes_do_not_keep_a_probe_out() {
    let folder = tempfile::tempdir().unwrap();
    let pair = pair();
    let settings = write(folder.path(), &pair.certificate, &pair.key);
    let (address, token, _tasks) = serve(Some(settings));
    let mut held = Vec::new();
    for _ in 0..MANY {
        held.push(connection(NEIGHBOUR, address, b"\x16\x03\x01").await);
    }
    let answered = timeout(Duration::from_secs(5), trusted(address, &pair.der)).await;
    assert!(answered.expect("in time"));
    token.cancel();
}

/// A client that sends many requests at once gets as many answers as one that waits for each.
#[tokio::test]
async fn requests_of_a_connection_take_their_time() {
    let (address, token, _tasks) = serve(None);
    let many = connection(NEIGHBOUR, address, &GET_AND_KEEP.repeat(200)).await;
    let answers = answers(many).await;
    assert!((2..=11).contains(&answers), "{answers} answers in 500 ms");
    token.cancel();
}

/// Requests that are sent at once on each of many connections cost one answer each.
#[tokio::test]
async fn a_crowd_gets_one_answer_per_connection() {
    let (address, token, _tasks) = serve(None);
    let both = GET_AND_KEEP.repeat(2);
    let alone = connection(NEIGHBOUR, address, &both).await;
    assert_eq!(answers(alone).await, 2);
    let mut held = Vec::new();
    for _ in 0..40 {
        held.push(connection(NEIGHBOUR, address, b"").await);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let crowded = connection(NEIGHBOUR, address, &both).await;
    assert_eq!(answers(crowded).await, 1);
    drop(held);
    token.cancel();
}

/// A connection that sends no request, or no further one, is closed.
#[tokio::test(start_paused = true)]
async fn a_silent_connection_ends_after_ten_seconds() {
    let (address, token, _tasks) = serve(None);
    for (sent, answers) in [(&b""[..], 0), (&GET_AND_KEEP[..9], 0), (GET_AND_KEEP, 1)] {
        let mut stream = connection(NEIGHBOUR, address, sent).await;
        let (begin, mut text) = (tokio::time::Instant::now(), Vec::new());
        stream.read_to_end(&mut text).await.ok();
        let seconds = begin.elapsed().as_secs();
        assert!((9..=11).contains(&seconds), "{seconds} s after {sent:?}");
        assert_eq!(String::from_utf8(text).unwrap().matches("HTTP/1.1 200").count(), answers);
    }
    token.cancel();
}

/// Returns the number of answers within a moment.
async fn answers(mut stream: TcpStream) -> usize {
    let mut text = Vec::new();
    let all = stream.read_to_end(&mut text);
    timeout(Duration::from_millis(500), all).await.ok();
    String::from_utf8(text).unwrap().matches("HTTP/1.1 200").count()
}
