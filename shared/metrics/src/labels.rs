//! Label values.

use std::{borrow::Cow, sync::Arc};

/// The value of a label.
pub type Text = Cow<'static, str>;

/// A type whose values are the values of one label.
///
/// For an enum with strum's `IntoStaticStr` and `VariantNames` write [`crate::label!`].
/// `Result<A, B>` has the values of both, `()` is `ok`. Values of text, numbers and their
/// `Option`s depend on the cluster or the cloud.
pub trait LabelValue {
    /// Returns the label's text for this value.
    fn text(self) -> Text;

    /// Returns every possible value, or one example where values depend on the cluster or the
    /// cloud.
    fn every() -> Vec<Text>;
}

/// Makes label values of an enum with strum's `IntoStaticStr` and `VariantNames`, or of a
/// struct of strings that come from elsewhere.
#[macro_export]
macro_rules! label {
    ($(#[$meta:meta])* struct $of:ident { $($word:literal),+ }) => {
        $(#[$meta])*
        struct $of(&'static str);

        impl $crate::LabelValue for $of {
            fn text(self) -> $crate::Text {
                self.0.into()
            }

            fn every() -> Vec<$crate::Text> {
                vec![$($word.into()),+]
            }
        }
    };
    ($($of:ty),+) => {$(
        impl $crate::LabelValue for $of {
            fn text(self) -> $crate::Text {
                <&'static str>::from(self).into()
            }

            fn every() -> Vec<$crate::Text> {
                <Self as $crate::VariantNames>::VARIANTS.iter().map(|name| (*name).into()).collect()
            }
        }
    )+};
}

macro_rules! open {
    ($($of:ty => $text:expr),+ $(,)?) => {$(
        impl LabelValue for $of {
            fn text(self) -> Text {
                $text(self)
            }

            fn every() -> Vec<Text> {
                vec!["example".into()]
            }
        }
    )+};
}

open! {
    &'static str => Into::into,
    Text => Into::into,
    Arc<str> => |text: Self| text.to_string().into(),
}

impl LabelValue for () {
    fn text(self) -> Text {
        "ok".into()
    }

    fn every() -> Vec<Text> {
        vec![().text()]
    }
}

impl<A: LabelValue, B: LabelValue> LabelValue for Result<A, B> {
    fn text(self) -> Text {
        match self {
            Ok(value) => value.text(),
            Err(value) => value.text(),
        }
    }

    fn every() -> Vec<Text> {
        [A::every(), B::every()].concat()
    }
}

/// A type that holds the values of all labels of one metric, in their order: a [`LabelValue`], a
/// tuple of them, or a type for labels that depend on each other.
pub trait LabelSet {
    /// Returns the labels' texts for this value.
    fn texts(self) -> Vec<Text>;

    /// Returns every combination, or one example where values depend on the cluster or the cloud.
    fn every() -> Vec<Vec<Text>>;
}

impl<V: LabelValue> LabelSet for V {
    fn texts(self) -> Vec<Text> {
        vec![self.text()]
    }

    fn every() -> Vec<Vec<Text>> {
        V::every().into_iter().map(|text| vec![text]).collect()
    }
}

impl<A: LabelValue, B: LabelValue> LabelSet for (A, B) {
    fn texts(self) -> Vec<Text> {
        vec![self.0.text(), self.1.text()]
    }

    fn every() -> Vec<Vec<Text>> {
        let second = B::every();
        let both = |a: Text| second.iter().map(move |b| vec![a.clone(), b.clone()]);
        A::every().into_iter().flat_map(both).collect()
    }
}

impl<A: LabelValue, B: LabelValue, C: LabelValue> LabelSet for (A, B, C) {
    fn texts(self) -> Vec<Text> {
        vec![self.0.text(), self.1.text(), self.2.text()]
    }

    fn every() -> Vec<Vec<Text>> {
        let third = C::every();
        let all =
            |two: Vec<Text>| third.iter().map(move |c| [two.clone(), vec![c.clone()]].concat());
        <(A, B)>::every().into_iter().flat_map(all).collect()
    }
}

impl<const N: usize> LabelSet for [Text; N] {
    fn texts(self) -> Vec<Text> {
        self.into()
    }

    fn every() -> Vec<Vec<Text>> {
        vec![vec!["example".into(); N]]
    }
}

/// The series that exist from the start.
pub trait Begin<V> {
    /// Returns the label values of each series.
    fn texts(self) -> Vec<Vec<Text>>;
}

/// A series for every value of every label.
#[derive(Clone, Copy, Debug)]
pub struct Every;

impl<V: LabelSet> Begin<V> for Every {
    fn texts(self) -> Vec<Vec<Text>> {
        V::every()
    }
}

impl<V: LabelSet, const N: usize> Begin<V> for [V; N] {
    fn texts(self) -> Vec<Vec<Text>> {
        self.into_iter().map(V::texts).collect()
    }
}

impl<A: LabelValue, B: LabelValue> Begin<(A, B)> for (A, Every) {
    fn texts(self) -> Vec<Vec<Text>> {
        let first = self.0.text();
        B::every().into_iter().map(|second| vec![first.clone(), second]).collect()
    }
}

impl<A: LabelValue, B: LabelValue> Begin<(A, B)> for (Every, B) {
    fn texts(self) -> Vec<Vec<Text>> {
        let second = self.1.text();
        A::every().into_iter().map(|first| vec![first, second.clone()]).collect()
    }
}
