//! Rates with client-go's conventions.

use ccm_settings::SettingValue;

/// Reads a rate: 0 means the default, a negative number no limit.
pub fn per_second(text: &str, default: &str) -> Result<Option<f64>, String> {
    zero_is_default(text, default).map(|number: f64| (number >= 0.0).then_some(number))
}

/// Reads a number. 0 means the default.
pub(super) fn zero_is_default<T>(text: &str, default: &str) -> Result<T, String>
where
    T: SettingValue + Default + PartialEq,
{
    let number = T::parse(text)?;
    if number == T::default() { T::parse(default) } else { Ok(number) }
}
