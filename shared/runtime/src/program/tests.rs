use super::{Failure, exit::Exit};

#[test]
fn exit_codes_are_as_documented() {
    assert_eq!(Exit::Done.code(), 0);
    assert_eq!(Exit::from(&Failure::Broken(String::new())).code(), 1);
    assert_eq!(Exit::from(&Failure::Usage(String::new())).code(), 2);
    assert_eq!(Exit::Signal(143).code(), 143);
}
