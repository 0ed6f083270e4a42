//! A value as JSON, with each of its texts learned or replaced. Fields and variants do not count as
//! texts.

use serde::{
    Serialize,
    ser::{
        Error as _, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
        SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
    },
};
use serde_json::{Error, Map, Value};

use super::names::Names;

/// Collects texts, or replaces them.
pub(super) enum Texts<'a> {
    Collect(&'a mut Names),
    Replace(&'a Names),
}

impl<'a> Texts<'a> {
    fn again(&mut self) -> Texts<'_> {
        match self {
            Self::Collect(names) => Texts::Collect(names),
            Self::Replace(names) => Texts::Replace(names),
        }
    }

    fn list(self, variant: Option<&'static str>) -> Many<'a> {
        Many { texts: self, variant, list: Vec::new(), fields: Map::new(), key: String::new() }
    }
}

/// The parts of a value.
pub(super) struct Many<'a> {
    texts: Texts<'a>,
    variant: Option<&'static str>,
    list: Vec<Value>,
    fields: Map<String, Value>,
    key: String,
}

impl Many<'_> {
    fn push(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let value = value.serialize(self.texts.again())?;
        self.list.push(value);
        Ok(())
    }

    fn set(&mut self, key: String, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let value = value.serialize(self.texts.again())?;
        self.fields.insert(key, value);
        Ok(())
    }

    fn wrapped(variant: Option<&'static str>, value: Value) -> Value {
        match variant {
            None => value,
            Some(variant) => Value::Object(Map::from_iter([(variant.to_owned(), value)])),
        }
    }

    fn array(self) -> Value {
        Self::wrapped(self.variant, Value::Array(self.list))
    }

    fn object(self) -> Value {
        Self::wrapped(self.variant, Value::Object(self.fields))
    }
}

macro_rules! numbers {
    ($($method:ident: $type:ty),*) => {$(
        fn $method(self, value: $type) -> Result<Value, Error> {
            serde_json::to_value(value)
        }
    )*};
}

impl<'a> Serializer for Texts<'a> {
    type Ok = Value;
    type Error = Error;
    type SerializeSeq = Many<'a>;
    type SerializeTuple = Many<'a>;
    type SerializeTupleStruct = Many<'a>;
    type SerializeTupleVariant = Many<'a>;
    type SerializeMap = Many<'a>;
    type SerializeStruct = Many<'a>;
    type SerializeStructVariant = Many<'a>;

    numbers!(
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_f32: f32, serialize_f64: f64
    );

    fn serialize_str(self, text: &str) -> Result<Value, Error> {
        Ok(match self {
            Self::Replace(names) => names.replaced(text).into(),
            Self::Collect(names) => {
                names.collect(text);
                Value::Null
            }
        })
    }

    fn serialize_char(self, text: char) -> Result<Value, Error> {
        self.serialize_str(&text.to_string())
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<Value, Error> {
        Err(Error::custom("bytes"))
    }

    fn serialize_none(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Value, Error> {
        Ok(variant.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Value, Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, Error> {
        Ok(Many::wrapped(Some(variant), value.serialize(self)?))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Many<'a>, Error> {
        Ok(self.list(None))
    }

    fn serialize_tuple(self, _: usize) -> Result<Many<'a>, Error> {
        Ok(self.list(None))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Many<'a>, Error> {
        Ok(self.list(None))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Many<'a>, Error> {
        Ok(self.list(Some(variant)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Many<'a>, Error> {
        Ok(self.list(None))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Many<'a>, Error> {
        Ok(self.list(None))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Many<'a>, Error> {
        Ok(self.list(Some(variant)))
    }
}

macro_rules! lists {
    ($($trait:ident $method:ident),*) => {$(
        impl $trait for Many<'_> {
            type Ok = Value;
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.push(value)
            }

            fn end(self) -> Result<Value, Error> {
                Ok(self.array())
            }
        }
    )*};
}

lists!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
);

macro_rules! structs {
    ($($trait:ident),*) => {$(
        impl $trait for Many<'_> {
            type Ok = Value;
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                field: &'static str,
                value: &T,
            ) -> Result<(), Error> {
                // A machine compares versions as numbers. They say nothing about a cluster.
                if field == "resource_version" {
                    self.fields.insert(field.to_owned(), serde_json::to_value(value)?);
                    return Ok(());
                }
                self.set(field.to_owned(), value)
            }

            fn end(self) -> Result<Value, Error> {
                Ok(self.object())
            }
        }
    )*};
}

structs!(SerializeStruct, SerializeStructVariant);

impl SerializeMap for Many<'_> {
    type Ok = Value;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = match key.serialize(self.texts.again())? {
            Value::String(text) => text,
            // The text was collected.
            Value::Null => String::new(),
            Value::Number(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            _ => return Err(Error::custom("a key that is not a text")),
        };
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let key = std::mem::take(&mut self.key);
        self.set(key, value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(self.object())
    }
}
