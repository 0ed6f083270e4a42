//! The macro that declares settings.

use crate::{Problems, RawSettings, Setting};

/// A group of settings: their table, and the typed value they convert to.
pub trait Schema: Sized {
    /// The settings as data.
    const TABLE: &'static [Setting];

    /// Converts the merged layers. Records every problem. Returns `None` if there is one.
    fn read(raw: &RawSettings, problems: &mut Problems) -> Option<Self>;
}

/// Declares settings, each in one place: its text for `--help` and the reference page (the
/// doc comment), its field or variable, whether it is `live` or `fixed`, its kind, flag and
/// default, and optionally a function of text and default that parses and checks it.
/// Without one, [`SettingValue`](crate::SettingValue) parses it.
///
/// A struct whose fields are settings; `=>` may complete it:
///
/// ```
/// use ccm_settings::within;
///
/// ccm_settings::settings! {
///     /// The settings of a program.
///     #[derive(Clone, Debug)]
///     pub struct Example {
///         /// Nodes worked on at once. From 1 to 1000.
///         pub workers: usize = live(Count, "concurrent-node-syncs", "32"), within(1..=1000);
///     }
/// }
/// ```
///
/// A type that is built from settings:
///
/// ```
/// # struct Window { opens: u32, closes: u32 }
/// ccm_settings::settings! {
///     impl Window {
///         /// When it opens.
///         opens: u32 = fixed(Count, "opens", "0");
///         /// How long it stays open.
///         open: u32 = fixed(Count, "stays-open", "5");
///     } => |raw, problems| {
///         let fits = open > 0;
///         if !fits {
///             raw.reject("stays-open", "must be at least 1", problems);
///         }
///         fits.then_some(Self { opens, closes: opens + open })
///     }
/// }
/// ```
#[macro_export]
macro_rules! settings {
    (@read $text:ident, $default:expr, $type:ty) => {
        <$type as $crate::SettingValue>::parse($text)
    };
    (@read $text:ident, $default:expr, $type:ty, $reader:expr) => {
        ($reader)($text, $default)
    };
    (
        $(#[$attribute:meta])* $visible:vis struct $name:ident {
            $(
                $(#[doc = $text:literal])* $(#[serde $serde:tt])? $shown:vis $field:ident: $type:ty
                    = $live:ident($kind:ident, $flag:literal, $default:expr) $(, $reader:expr)?;
            )*
        } $(=> |$this:ident, $raw:pat_param, $problems:pat_param| $completed:expr)?
    ) => {
        $(#[$attribute])* $visible struct $name {
            $($(#[doc = $text])* $(#[serde $serde])? $shown $field: $type,)*
        }
        $crate::settings! {
            impl $name {
                $($(#[doc = $text])* $field: $type = $live($kind, $flag, $default) $(, $reader)?;)*
            } => |raw, problems| {
                let settings = Self { $($field),* };
                $(let settings = {
                    let ($this, $raw, $problems) = (settings, raw, &mut *problems);
                    $completed
                };)?
                Some(settings)
            }
        }
    };
    (
        impl $name:ident {
            $(
                $(#[doc = $text:literal])* $field:ident: $type:ty
                    = $live:ident($kind:ident, $flag:literal, $default:expr) $(, $reader:expr)?;
            )*
        } => |$raw:pat_param, $problems:pat_param| $value:expr
    ) => {
        impl $crate::Schema for $name {
            const TABLE: &'static [$crate::Setting] = &[
                $($crate::Setting::$live($crate::ValueKind::$kind, $flag, $default, concat!($($text),*))),*
            ];

            fn read(raw: &$crate::RawSettings, problems: &mut $crate::Problems) -> Option<Self> {
                $(
                    let read = |text: &str| {
                        $crate::settings!(@read text, $default, $type $(, $reader)?)
                    };
                    let $field: Option<$type> = raw.read($flag, read, problems);
                )*
                // This comes after all reads, so that all problems are reported at once.
                $(let $field = $field?;)*
                let ($raw, $problems) = (raw, problems);
                $value
            }
        }
    };
}
