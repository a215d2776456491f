//! Metadata values, read where they lie.
//!
//! A vocabulary is an array of 262 144 strings. Copying it into a vector of values would cost more than all other
//! metadata together, and most of it is read once. So an array is a checked byte range plus an iterator, and
//! strings are borrowed from the file. The range was walked once when the file was opened, so iteration cannot fail.

use super::error::{GgufError, Place};
use super::reader::Reader;
use crate::Limits;

/// The type of a metadata value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    /// In the order of their ids.
    const ALL: [ValueType; 13] = [
        ValueType::U8,
        ValueType::I8,
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::Bool,
        ValueType::String,
        ValueType::Array,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    fn from_id(id: u32) -> Option<ValueType> {
        ValueType::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// As messages spell it.
    pub fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::String => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }

    /// Bytes of one value in the file, unless that depends on the value.
    fn fixed_bytes(self) -> Option<u64> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::String | ValueType::Array => None,
        }
    }
}

/// A metadata value, borrowed from the file.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    /// Bytes, because nothing makes a writer use UTF-8. Ask for `&str` to have that checked.
    String(&'a [u8]),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    /// The value's type.
    pub fn value_type(self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// The value as an integer, if it is one of any width. Bools are not integers.
    pub fn integer(self) -> Option<i128> {
        match self {
            Value::U8(value) => Some(value.into()),
            Value::I8(value) => Some(value.into()),
            Value::U16(value) => Some(value.into()),
            Value::I16(value) => Some(value.into()),
            Value::U32(value) => Some(value.into()),
            Value::I32(value) => Some(value.into()),
            Value::U64(value) => Some(value.into()),
            Value::I64(value) => Some(value.into()),
            _ => None,
        }
    }

    /// Type and, where short, content, for messages: `i32 -5`, `array of 3 string`.
    pub fn describe(self) -> String {
        match self {
            Value::String(bytes) if std::str::from_utf8(bytes).is_err() => {
                format!("string of {} bytes that is not UTF-8", bytes.len())
            }
            Value::String(bytes) => format!("string of {} bytes", bytes.len()),
            Value::Array(array) => format!("array of {} {}", array.len(), array.element.name()),
            Value::Bool(value) => format!("bool {value}"),
            Value::F32(value) => format!("f32 {value}"),
            Value::F64(value) => format!("f64 {value}"),
            other => {
                let integer = other.integer().expect("all that is left are integers");
                format!("{} {integer}", other.value_type().name())
            }
        }
    }

    /// Decodes a value of fixed size, or a string, at the reader. Everything was checked by [`RawValue::read`].
    fn decode(ty: ValueType, reader: &mut Reader<'a>) -> Value<'a> {
        fn bytes<const N: usize>(reader: &mut Reader<'_>) -> [u8; N] {
            reader
                .array()
                .expect("the range was walked when the file was opened")
        }
        match ty {
            ValueType::U8 => Value::U8(u8::from_le_bytes(bytes(reader))),
            ValueType::I8 => Value::I8(i8::from_le_bytes(bytes(reader))),
            ValueType::U16 => Value::U16(u16::from_le_bytes(bytes(reader))),
            ValueType::I16 => Value::I16(i16::from_le_bytes(bytes(reader))),
            ValueType::U32 => Value::U32(u32::from_le_bytes(bytes(reader))),
            ValueType::I32 => Value::I32(i32::from_le_bytes(bytes(reader))),
            ValueType::F32 => Value::F32(f32::from_le_bytes(bytes(reader))),
            ValueType::Bool => Value::Bool(bytes::<1>(reader)[0] == 1),
            ValueType::U64 => Value::U64(u64::from_le_bytes(bytes(reader))),
            ValueType::I64 => Value::I64(i64::from_le_bytes(bytes(reader))),
            ValueType::F64 => Value::F64(f64::from_le_bytes(bytes(reader))),
            ValueType::String => {
                let len = u64::from_le_bytes(bytes(reader));
                Value::String(
                    reader
                        .take(len)
                        .expect("the range was walked when the file was opened"),
                )
            }
            ValueType::Array => unreachable!("arrays do not nest"),
        }
    }
}

/// An array of values of one type, borrowed from the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array<'a> {
    element: ValueType,
    len: usize,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// The type of every element; never [`ValueType::Array`].
    pub fn element(self) -> ValueType {
        self.element
    }

    /// Number of elements.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The elements in order. Costs no allocation.
    pub fn iter(self) -> Elements<'a> {
        Elements {
            element: self.element,
            left: self.len,
            reader: Reader::new(self.bytes),
        }
    }
}

/// The elements of an [`Array`].
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    element: ValueType,
    left: usize,
    reader: Reader<'a>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        Some(Value::decode(self.element, &mut self.reader))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Elements<'_> {}

/// The elements of an array of strings, as the bytes that stand in the file.
#[derive(Clone, Debug)]
pub struct Strings<'a>(Elements<'a>);

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self.0.next()? {
            Value::String(bytes) => Some(bytes),
            _ => unreachable!("made only from arrays of strings"),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Strings<'_> {}

/// Where a checked value lies, without borrowing the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawValue {
    ty: ValueType,
    /// Element type and length, for arrays.
    array: Option<(ValueType, usize)>,
    start: usize,
    end: usize,
}

impl RawValue {
    /// Walks one value: type id, then content.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        key: &str,
        limits: &Limits,
    ) -> Result<RawValue, GgufError> {
        let place = || Place::Key(key.to_owned());
        let read_type = |reader: &mut Reader<'_>| {
            let id = reader.u32().map_err(|short| short.at(place()))?;
            ValueType::from_id(id).ok_or_else(|| GgufError::BadValueType { place: place(), id })
        };
        let ty = read_type(reader)?;
        let array = match ty {
            ValueType::Array => {
                let element = read_type(reader)?;
                let len = reader.u64().map_err(|short| short.at(place()))?;
                check_limit(place, "elements", len, limits.array_len_max)?;
                Some((element, len))
            }
            _ => None,
        };
        let start = reader.position();
        let (element, num_values) = array.unwrap_or((ty, 1));
        skip_values(reader, element, num_values, &place, limits)?;
        let end = reader.position();
        // Every element takes at least a byte, so a length that passed `skip_values` fits a usize.
        let array = array.map(|(element, len)| (element, len as usize));
        Ok(RawValue {
            ty,
            array,
            start,
            end,
        })
    }

    /// The value, given the file it was read from.
    pub(super) fn value<'a>(&self, file: &'a [u8]) -> Value<'a> {
        let bytes = &file[self.start..self.end];
        match self.array {
            Some((element, len)) => Value::Array(Array {
                element,
                len,
                bytes,
            }),
            None => Value::decode(self.ty, &mut Reader::new(bytes)),
        }
    }
}

/// Moves past `num_values` values, checking what iteration will rely on.
fn skip_values(
    reader: &mut Reader<'_>,
    ty: ValueType,
    num_values: u64,
    place: &impl Fn() -> Place,
    limits: &Limits,
) -> Result<(), GgufError> {
    match ty.fixed_bytes() {
        Some(bytes_each) => {
            // Both factors are bounded by `Limits`, but saturating is right whatever those are.
            let values = reader
                .take(num_values.saturating_mul(bytes_each))
                .map_err(|short| short.at(place()))?;
            match (ty, values.iter().find(|&&byte| byte > 1)) {
                (ValueType::Bool, Some(&byte)) => Err(GgufError::BadBool {
                    place: place(),
                    byte,
                }),
                _ => Ok(()),
            }
        }
        None if ty == ValueType::Array => Err(GgufError::NestedArray { place: place() }),
        None => {
            for _ in 0..num_values {
                let len = reader.u64().map_err(|short| short.at(place()))?;
                check_limit(place, "string bytes", len, limits.string_bytes_max)?;
                reader.take(len).map_err(|short| short.at(place()))?;
            }
            Ok(())
        }
    }
}

pub(super) fn check_limit(
    place: impl Fn() -> Place,
    unit: &'static str,
    found: u64,
    limit: u64,
) -> Result<(), GgufError> {
    if found > limit {
        return Err(GgufError::OverLimit {
            place: place(),
            unit,
            found,
            limit,
        });
    }
    Ok(())
}

/// A Rust type that a metadata value can be asked for as.
///
/// Integers convert from any integer type as long as the value fits, because writers disagree about widths;
/// floats from `f32` and `f64`, an `f32` rounded. Nothing converts between integers, floats, bools and strings.
pub trait FromValue<'a>: Sized {
    /// What to call the wanted type in a message.
    const EXPECTED: &'static str;

    /// The value, unless it has another type or does not fit.
    fn from_value(value: Value<'a>) -> Option<Self>;
}

macro_rules! from_integer {
    ($($ty:ident)*) => {$(
        impl FromValue<'_> for $ty {
            const EXPECTED: &'static str = stringify!($ty);
            fn from_value(value: Value<'_>) -> Option<$ty> {
                $ty::try_from(value.integer()?).ok()
            }
        }
    )*};
}
from_integer!(u8 u16 u32 u64 usize i32 i64);

impl FromValue<'_> for f32 {
    const EXPECTED: &'static str = "f32";
    fn from_value(value: Value<'_>) -> Option<f32> {
        let wide = f64::from_value(value)?;
        let narrow = wide as f32;
        (narrow.is_finite() || !wide.is_finite()).then_some(narrow)
    }
}

impl FromValue<'_> for f64 {
    const EXPECTED: &'static str = "f64";
    fn from_value(value: Value<'_>) -> Option<f64> {
        match value {
            Value::F32(value) => Some(value.into()),
            Value::F64(value) => Some(value),
            _ => None,
        }
    }
}

impl FromValue<'_> for bool {
    const EXPECTED: &'static str = "bool";
    fn from_value(value: Value<'_>) -> Option<bool> {
        match value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a [u8] {
    const EXPECTED: &'static str = "string";
    fn from_value(value: Value<'a>) -> Option<&'a [u8]> {
        match value {
            Value::String(bytes) => Some(bytes),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a str {
    const EXPECTED: &'static str = "UTF-8 string";
    fn from_value(value: Value<'a>) -> Option<&'a str> {
        std::str::from_utf8(<&[u8]>::from_value(value)?).ok()
    }
}

impl<'a> FromValue<'a> for Array<'a> {
    const EXPECTED: &'static str = "array";
    fn from_value(value: Value<'a>) -> Option<Array<'a>> {
        match value {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for Strings<'a> {
    const EXPECTED: &'static str = "array of string";
    fn from_value(value: Value<'a>) -> Option<Strings<'a>> {
        match value {
            Value::Array(array) if array.element == ValueType::String => {
                Some(Strings(array.iter()))
            }
            _ => None,
        }
    }
}

macro_rules! from_array {
    ($($ty:ident)*) => {$(
        impl FromValue<'_> for Vec<$ty> {
            const EXPECTED: &'static str = concat!("array of ", stringify!($ty));
            fn from_value(value: Value<'_>) -> Option<Vec<$ty>> {
                Array::from_value(value)?.iter().map($ty::from_value).collect()
            }
        }
    )*};
}
from_array!(u32 i32 u64 f32 bool);
