//! What the compiler says of each way to get the attributes wrong.

#[test]
fn ui() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
