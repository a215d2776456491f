//! What templates expect of Python: `tojson`, `raise_exception`, `strftime_now`, methods of strings and dicts.
//!
//! Source: `transformers` (`utils/chat_template_utils.py`, `_compile_jinja_template`), Python's `json` module.

use std::fmt;
use std::io;
use std::time::SystemTime;

use jiff::{Timestamp, fmt::strtime, tz::TimeZone};
use minijinja::formatting::FormatStyle;
use minijinja::value::{Kwargs, Rest, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;
use serde_json::ser::Formatter;

use super::keep::too_much;
use super::tags::{ITERABLE_FILTER, python_iterable};
use super::{BoundedOutput, output_limit};

/// The variable that tells `tojson` which character is our own mark. Not an identifier, so no
/// template can name it.
pub(super) const MARKER_VARIABLE: &str = "control text marker";

/// Adds what Jinja as `transformers` sets it up has and minijinja has not.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(python_method);
    environment.add_function("raise_exception", raise_exception);
    environment.add_filter("tojson", tojson);
    environment.add_filter("format", format_filter);
    environment.add_filter(ITERABLE_FILTER, python_iterable);
    set_clock(environment, SystemTime::now);
}

/// Lets `strftime_now` tell the time of `clock`, in UTC.
pub(super) fn set_clock(
    environment: &mut Environment<'static>,
    clock: impl Fn() -> SystemTime + Send + Sync + 'static,
) {
    environment.add_function("strftime_now", move |format: &str| {
        strftime(format, clock()).map_err(|error| invalid(format!("strftime_now: {error}")))
    });
}

fn strftime(format: &str, time: SystemTime) -> Result<String, jiff::Error> {
    let now = Timestamp::try_from(time)?.to_zoned(TimeZone::UTC);
    strtime::format(format, &now)
}

/// What a template said with `raise_exception`.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// Methods of strings, lists and dicts, where `str.format` pays for its text before it makes it.
fn python_method(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    if let (Some(text), "format") = (value.as_str(), method) {
        pay_for_format(state, text, arguments)?;
    }
    unknown_method_callback(state, value, method, arguments)
}

/// `'%s'|format(x)`, paid for likewise.
fn format_filter(
    state: &State,
    format: &str,
    arguments: Rest<ValueOrKwargs>,
) -> Result<String, Error> {
    let arguments = arguments.into_values();
    pay_for_format(state, format, &arguments)?;
    minijinja::formatting::format(FormatStyle::Printf, format, &arguments)
}

fn pay_for_format(state: &State, format: &str, arguments: &[Value]) -> Result<(), Error> {
    /// minijinja's own price of text.
    const BYTES_PER_STEP: u64 = 64;
    state.consume_fuel(formatted_bytes_max(format, arguments) / BYTES_PER_STEP)
}

/// Bytes that `format.format(arguments)` may have: a short text says `{:>1000000000}` or names a long one many times.
fn formatted_bytes_max(format: &str, arguments: &[Value]) -> u64 {
    let numbers = format.split(|c: char| !c.is_ascii_digit());
    let widths = numbers
        .filter(|digits| !digits.is_empty())
        .map(|digits| digits.parse().unwrap_or(u64::MAX))
        .fold(0, u64::saturating_add);
    let num_bytes = |argument: &Value| match argument.as_str() {
        Some(text) => text.len(),
        None => argument.to_string().len(),
    };
    let longest = arguments.iter().map(num_bytes).max().unwrap_or(0) as u64;
    let num_fields = format
        .bytes()
        .filter(|byte| matches!(byte, b'{' | b'%'))
        .count() as u64;
    widths.saturating_add(num_fields.saturating_mul(longest))
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(invalid(message.clone()).with_source(Raised(message)))
}

/// The template's own words, if `error` comes from `raise_exception`.
pub(super) fn raised_message(error: &minijinja::Error) -> Option<&str> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return Some(message);
        }
        source = cause.source();
    }
    None
}

fn invalid(reason: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// `json.dumps(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn tojson(
    state: &State,
    value: &Value,
    positional: Rest<Value>,
    keywords: Kwargs,
) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(invalid("tojson: the value is undefined".to_owned()));
    }
    let argument = |idx: usize, name: &str| -> Result<Option<Value>, Error> {
        let given: Option<Value> = keywords.get(name)?;
        let given = given.or_else(|| positional.get(idx).cloned());
        Ok(given.filter(|value| !value.is_none()))
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = match argument(1, "indent")? {
        Some(width) => Some(indent_text(&width)?),
        None => None,
    };
    let separators = argument(2, "separators")?;
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|value| value.is_true());
    keywords.assert_all_used()?;

    let (item_separator, key_separator) = match separators {
        Some(pair) => (
            pair.get_item_by_index(0)?.to_string(),
            pair.get_item_by_index(1)?.to_string(),
        ),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let charset = match (ensure_ascii, state.lookup(MARKER_VARIABLE)) {
        (false, _) => Charset::Unicode,
        (true, marker) => Charset::Ascii {
            except: marker.and_then(|marker| marker.as_str()?.chars().next()),
        },
    };
    let style = PythonJson {
        indent,
        item_separator,
        key_separator,
        charset,
        depth: 0,
        has_items: false,
    };
    let failed = |error: serde_json::Error| invalid(format!("tojson: {error}"));
    let mut json = serde_json::to_value(value).map_err(failed)?;
    if sort_keys {
        json.sort_all_objects();
    }
    let mut output = BoundedOutput(Vec::new());
    json.serialize(&mut serde_json::Serializer::with_formatter(
        &mut output,
        style,
    ))
    .map_err(|error| match error.is_io() {
        // Indents and separators may be long, and are written for each item.
        true => too_much(output_limit()),
        false => failed(error),
    })?;
    Ok(String::from_utf8(output.0).expect("JSON text is UTF-8"))
}

/// Python takes a number of spaces or the text itself.
fn indent_text(width: &Value) -> Result<String, Error> {
    const INDENT_MAX: usize = 64;
    match (width.as_str(), width.as_usize()) {
        (Some(text), _) => Ok(text.to_owned()),
        (None, Some(width)) if width <= INDENT_MAX => Ok(" ".repeat(width)),
        _ => Err(invalid(format!(
            "tojson: indent {width} is not 0 to {INDENT_MAX}"
        ))),
    }
}

/// Which characters stand for themselves.
enum Charset {
    Unicode,
    /// Others are written `\uXXXX`, but for one that is ours and will be removed.
    Ascii {
        except: Option<char>,
    },
}

/// Lays JSON out as Python's `json.dumps` does.
struct PythonJson {
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    charset: Charset,
    depth: usize,
    /// Whether the innermost container that was just closed or is open has any item.
    has_items: bool,
}

impl PythonJson {
    fn open<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_items = false;
        writer.write_all(bracket)
    }

    fn close<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.has_items {
            self.new_line(writer)?;
        }
        self.has_items = true;
        writer.write_all(bracket)
    }

    fn begin_item<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(self.item_separator.as_bytes())?;
        }
        self.has_items = true;
        self.new_line(writer)
    }

    fn new_line<W: ?Sized + io::Write>(&self, writer: &mut W) -> io::Result<()> {
        let Some(indent) = &self.indent else {
            return Ok(());
        };
        writer.write_all(b"\n")?;
        for _ in 0..self.depth {
            writer.write_all(indent.as_bytes())?;
        }
        Ok(())
    }
}

impl Formatter for PythonJson {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(python_float(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let Charset::Ascii { except } = self.charset else {
            return writer.write_all(fragment.as_bytes());
        };
        for character in fragment.chars() {
            if character.is_ascii() || Some(character) == except {
                write!(writer, "{character}")?;
            } else {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.begin_item(writer, first)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.begin_item(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.key_separator.as_bytes())
    }
}

/// Python's `repr` of a float: shortest digits, an exponent below 1e-4 and from 1e16 on.
fn python_float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("`{:e}` has an exponent");
    let exponent: i32 = exponent.parse().expect("an integer");
    if (-4..16).contains(&exponent) {
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
