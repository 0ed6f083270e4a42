use rustix::process::{Signal, getpid, kill_process};
use tokio_util::sync::CancellationToken;

use super::{Failure, start::signalled};

#[test]
fn exit_codes_are_as_documented() {
    assert_eq!(Failure::Broken(String::new()).exit_code(), 1);
    assert_eq!(Failure::Usage(String::new()).exit_code(), 2);
}

#[tokio::test]
async fn the_first_signal_ends_in_order_and_the_second_at_once() {
    for (signal, expect) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let stop = CancellationToken::new();
        let raise = async {
            // The handlers are installed by now.
            kill_process(getpid(), signal).unwrap();
            stop.cancelled().await;
            kill_process(getpid(), signal).unwrap();
        };
        let (code, ()) = tokio::join!(signalled(&stop), raise);
        assert_eq!(code.unwrap(), expect);
    }
}
