use super::Failure;

#[test]
fn exit_codes_are_as_documented() {
    assert_eq!(Failure::Broken(String::new()).exit_code(), 1);
    assert_eq!(Failure::Usage(String::new()).exit_code(), 2);
}
