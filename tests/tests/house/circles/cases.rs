//! Made-up crates, each with its circles.

use super::{
    circles, methods,
    modules::{Modules, Sources},
};

/// Reads a crate of these files and compares the modules of its circles.
fn check(files: &[(&str, &str)], expect: &[&str]) {
    let sources: Sources =
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let found = circles(Modules::read(&sources, "lib.rs").uses());
    let found: Vec<_> = found.iter().map(|circle| circle.modules.join(" ")).collect();
    assert_eq!(found, expect, "{files:#?}");
}

/// Checks two modules: `b` uses `a`, and `a` holds this code.
fn check_pair(code: &str, circle: bool) {
    let root = "pub mod a; pub mod b; pub use b::Reexported;";
    let other = "use crate::a::A; pub mod deep; pub use deep::Deep;";
    let expect: &[&str] = if circle { &["a b"] } else { &[] };
    let files = [("lib.rs", root), ("a.rs", code), ("b.rs", other), ("b/deep.rs", "struct Deep;")];
    check(&files, expect);
}

#[test]
fn every_form_of_naming_counts() {
    for code in [
        "use crate::b::B;",
        "use super::b::B;",
        "pub use crate::b::B as Other;",
        "use crate::{c::C, b::{self, B}};",
        "use crate::b::*;",
        "fn f() { use crate::b::B; }",
        "fn f() -> crate::b::B { loop {} }",
        "fn f() { super::b::f(); }",
        "fn f() { log!(error = %crate::b::f()) }",
        "fn f() { Vec::<crate::b::B>::new() }",
        "use crate::b; fn f() { b::f() }",
        "use crate::b as other; fn f() { other::f() }",
        "mod inner { fn f() { super::super::b::f() } }",
        "use crate::Reexported;",
        "fn f() { crate::Reexported::new() }",
        "use crate::b::Deep;",
        "use crate::b::deep::Deep;",
        "use std::fmt as _; use crate::b::Trait as _; use std::io as _;",
        "#[cfg(unix)] use crate::b::B;",
        "#[cfg(test)] use std::{fmt, io}; use crate::b::B;",
        "#[cfg(test)] mod tests { } use crate::b::B;",
        "struct S { #[cfg(test)] seen: u8, b: crate::b::B }",
    ] {
        check_pair(code, true);
    }
}

#[test]
fn what_is_no_use_does_not_count() {
    for code in [
        "",
        "// crate::b::B\n/// [`crate::b::B`]\nconst TEXT: &str = \"crate::b::B\";",
        "#[cfg(test)] mod tests;",
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(test)] use crate::b::{B, C};",
        "#[cfg(test)] #[derive(Debug)] struct S { b: crate::b::B }",
        "struct S { #[cfg(test)] b: crate::b::B, c: u8 }",
        "use b::B; fn f() { b::f() }",
        "use crate::b;",
        "pub(in crate::b) fn f(value: V) { value.b::<u8>(); V::<u8>::b::c() }",
        "use tokio; fn f() { tokio::spawn() }",
    ] {
        check_pair(code, false);
    }
}

#[test]
fn parent_and_child_may_use_each_other() {
    check(
        &[
            ("lib.rs", "mod a; pub struct Root; use a::A;"),
            ("a.rs", "mod x; mod y; use x::X; use y::Y; use crate::Root; pub struct A;"),
            ("a/x.rs", "use super::A; use super::y::Y; use crate::Root; pub struct X;"),
            ("a/y.rs", "use crate::a::A; pub struct Y;"),
        ],
        &[],
    );
}

#[test]
fn what_lies_below_a_module_belongs_to_it() {
    check(
        &[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod x; mod y;"),
            ("a/x.rs", "use crate::b::B;"),
            ("a/y.rs", "pub struct Y;"),
            ("b.rs", "use crate::a::y::Y; pub struct B;"),
        ],
        &["a b"],
    );
}

#[test]
fn circles_are_found_at_any_length_and_depth() {
    check(
        &[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B; mod x; mod y;"),
            ("a/x.rs", "use super::y::Y;"),
            ("a/y.rs", "use super::x::X;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use crate::a::A; use crate::d::D;"),
            ("d.rs", "pub struct D;"),
        ],
        &["a b c", "a::x a::y"],
    );
}

#[test]
fn a_circle_shows_the_uses_that_close_it() {
    let files = [(
        "lib.rs",
        "mod a { use crate::b::B; use crate::c::C; } mod b { use super::a::f; }\
        mod c { }",
    )];
    let sources: Sources =
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let found = circles(Modules::read(&sources, "lib.rs").uses());
    assert_eq!(found[0].uses, ["a names crate::b::B", "b names super::a::f"]);
}

#[test]
fn methods_are_found_in_each_file_of_a_type() {
    let check = |one: &str, two: &str, expect: &[&str]| {
        let texts =
            [("one.rs", one), ("two.rs", two), ("lib.rs", "mod one; mod two; struct S<T>(T);")];
        let sources = texts.map(|(file, text)| (file.to_owned(), text.to_owned())).into();
        let found = methods::calls(&sources).into_values().flat_map(circles);
        let found: Vec<String> = found.map(|circle| circle.modules.join(" ")).collect();
        assert_eq!(found, expect, "{one} {two}");
    };
    let one = "impl<T: Fn() -> u8> S<T> where T: Copy { fn a(&self) { self.b(); } fn c(&self) {} }";
    check(one, "impl<T> S<T> { fn b(&self) { self.c(); } }", &["one two"]);
    check(one, "impl<T> Drop for S<T> { fn b(&self) { Self::c(&self); } }", &["one two"]);
    check(one, "impl<T> S<T> { fn b(&self) { self.c; other.c(); } }", &[]);
    check(one, "impl<T> Other<T> { fn b(&self) { self.c(); } }", &[]);
    check(one, "impl<T> S<T> { fn b(&self) {} #[cfg(test)] fn d(&self) { self.c(); } }", &[]);
}
