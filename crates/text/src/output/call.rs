//! One call's JSON as it arrives: `{"name": "f", "arguments": {…}}`, or the arguments alone behind a name.
//!
//! The one idea: a scanner that knows only strings, depth and the keys of the outermost object. As soon as the name is
//! known and the arguments have begun, they pass through as they arrive; whether they are JSON is
//! judged when they are whole.

use serde_json::Value;

/// Bytes of a call's head, up to the name and the beginning of its arguments, or of arguments that come before the name.
const HEAD_BYTES_MAX: usize = 1 << 20;

/// What a call came to with the text so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is not whole.
    Going,
    /// It is whole and sound; so many bytes of the text come after it.
    Complete { num_left: usize },
    /// It is no call. What was not passed on is [`Call::rest`].
    NoCall { num_left: usize },
}

/// A call in the making.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// All of it.
    text: String,
    scan: Scan,
    name: Option<String>,
    /// The name is known and arguments follow it: from here on it is a call, sound or not.
    is_begun: bool,
    is_name_told: bool,
    /// Where the arguments begin and, once they are whole, end.
    arguments: Option<(usize, Option<usize>)>,
    /// Up to where they were passed on.
    told: usize,
}

/// Where a scan stands.
#[derive(Clone, Debug, Default)]
struct Scan {
    at: usize,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// Where a string of the outermost object began.
    string_at: usize,
    /// The outermost object's key whose value comes or is there.
    key: Option<String>,
    /// Whether that value has begun.
    value_at: Option<usize>,
}

impl Call {
    /// A whole call: an object with a name and arguments.
    pub(super) fn in_object() -> Call {
        Call {
            text: String::new(),
            scan: Scan::default(),
            name: None,
            is_begun: false,
            is_name_told: false,
            arguments: None,
            told: 0,
        }
    }

    /// A call whose name is known; its arguments come.
    pub(super) fn with_name(name: String) -> Call {
        Call {
            name: Some(name),
            arguments: Some((0, None)),
            ..Call::in_object()
        }
    }

    /// The name, once, as soon as arguments follow it.
    pub(super) fn take_name(&mut self) -> Option<String> {
        if self.is_name_told || !self.is_begun {
            return None;
        }
        self.is_name_told = true;
        self.name.clone()
    }

    /// More of the arguments.
    pub(super) fn take_arguments(&mut self) -> Option<String> {
        let (begin, end) = self.arguments.filter(|_| self.is_name_told)?;
        let from = self.told.max(begin);
        let to = end.unwrap_or(self.scan.at);
        // Arguments in a string are passed on when they are whole.
        if self.text[begin..].starts_with('"') {
            let whole = end.filter(|_| self.told < to)?;
            self.told = to;
            return serde_json::from_str::<String>(&self.text[begin..whole])
                .ok()
                .filter(|json| !json.is_empty());
        }
        if from >= to {
            return None;
        }
        self.told = to;
        Some(self.text[from..to].to_owned())
    }

    /// What was neither passed on nor is part of a sound call.
    pub(super) fn rest(&mut self) -> String {
        let from = if self.is_name_told { self.told } else { 0 };
        self.text.split_off(from.min(self.text.len()))
    }

    /// Takes more text; `tools` are the names that count.
    pub(super) fn push(&mut self, text: &str, tools: &[String], is_end: bool) -> Outcome {
        let before = self.text.len();
        self.text.push_str(text);
        while self.scan.at < self.text.len() {
            let byte = self.text.as_bytes()[self.scan.at];
            match self.advance(byte, tools) {
                Ok(false) => {
                    let follow = self
                        .arguments
                        .is_some_and(|(begin, _)| begin < self.scan.at);
                    self.is_begun |= self.name.is_some() && follow;
                }
                Ok(true) => {
                    let num_left = text.len() - (self.scan.at - before);
                    self.text.truncate(self.scan.at);
                    return match self.is_sound() {
                        true => {
                            self.is_begun = true;
                            Outcome::Complete { num_left }
                        }
                        false => Outcome::NoCall { num_left },
                    };
                }
                Err(()) => {
                    // From this byte on it is no call.
                    self.scan.at -= 1;
                    return Outcome::NoCall { num_left: 0 };
                }
            }
        }
        if is_end || (!self.is_begun && self.text.len() > HEAD_BYTES_MAX) {
            return Outcome::NoCall { num_left: 0 };
        }
        Outcome::Going
    }

    /// Takes one byte. Tells whether it ended the call, or that there is none.
    fn advance(&mut self, byte: u8, tools: &[String]) -> Result<bool, ()> {
        let at = self.scan.at;
        self.scan.at += 1;
        if self.scan.in_string {
            match byte {
                _ if self.scan.is_escaped => self.scan.is_escaped = false,
                b'\\' => self.scan.is_escaped = true,
                b'"' => {
                    self.scan.in_string = false;
                    if self.scan.depth == 1 {
                        self.end_string(at)?;
                    }
                }
                _ => {}
            }
            return Ok(false);
        }
        let is_space = byte.is_ascii_whitespace();
        if self.scan.depth == 1
            && self.scan.key.is_some()
            && self.scan.value_at.is_none()
            && !is_space
            && byte != b':'
        {
            self.begin_value(at);
        }
        match byte {
            b'"' => {
                self.scan.in_string = true;
                self.scan.string_at = at;
                if self.scan.depth == 0 {
                    return Err(());
                }
            }
            b'{' | b'[' => self.scan.depth += 1,
            b'}' | b']' => {
                self.scan.depth = self.scan.depth.checked_sub(1).ok_or(())?;
                match self.scan.depth {
                    0 => {
                        self.end_value(at, tools)?;
                        self.close_arguments();
                        return Ok(true);
                    }
                    1 => self.end_value_after(tools)?,
                    _ => {}
                }
            }
            b',' if self.scan.depth == 1 => self.end_value(at, tools)?,
            _ if self.scan.depth == 0 && !is_space => return Err(()),
            _ => {}
        }
        Ok(false)
    }

    /// A string of the outermost object ended at its quote: a key, or a value.
    fn end_string(&mut self, quote_at: usize) -> Result<(), ()> {
        if self.scan.value_at.is_some() || self.is_bare_arguments() {
            return Ok(());
        }
        if self.scan.key.is_some() {
            return Ok(());
        }
        let key: String =
            serde_json::from_str(&self.text[self.scan.string_at..=quote_at]).map_err(|_| ())?;
        // Anything else is an answer in JSON and not a call.
        let is_known =
            ["name", "arguments", "parameters", "type", "function", "id"].contains(&key.as_str());
        if !is_known {
            return Err(());
        }
        self.scan.key = Some(key);
        Ok(())
    }

    /// The text is the arguments themselves.
    fn is_bare_arguments(&self) -> bool {
        self.arguments.is_some_and(|(begin, _)| begin == 0)
    }

    fn begin_value(&mut self, at: usize) {
        self.scan.value_at = Some(at);
        if matches!(self.scan.key.as_deref(), Some("arguments" | "parameters"))
            && self.arguments.is_none()
        {
            self.arguments = Some((at, None));
        }
    }

    /// A value that is an object or a list ended with the byte just read.
    fn end_value_after(&mut self, tools: &[String]) -> Result<(), ()> {
        self.finish_value(self.scan.at, tools)
    }

    /// The outermost object's value, if one is open, ended before the byte at `at`.
    fn end_value(&mut self, at: usize, tools: &[String]) -> Result<(), ()> {
        self.finish_value(at, tools)?;
        self.scan.key = None;
        self.scan.value_at = None;
        Ok(())
    }

    fn finish_value(&mut self, end: usize, tools: &[String]) -> Result<(), ()> {
        let Some(begin) = self.scan.value_at else {
            return Ok(());
        };
        let value = self.text[begin..end].trim_end();
        match self.scan.key.as_deref() {
            Some("name") => {
                let name: String = serde_json::from_str(value).map_err(|_| ())?;
                if !tools.contains(&name) {
                    return Err(());
                }
                self.name = Some(name);
            }
            Some("arguments" | "parameters") => {
                if let Some((at, end @ None)) = &mut self.arguments
                    && *at == begin
                {
                    *end = Some(begin + value.len());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn close_arguments(&mut self) {
        if let Some((0, end @ None)) = &mut self.arguments {
            *end = Some(self.scan.at);
        }
    }

    /// Whether it is JSON with a name and an object of arguments.
    fn is_sound(&mut self) -> bool {
        let Some(_) = &self.name else { return false };
        let Some((begin, Some(end))) = self.arguments else {
            // A call without arguments has none.
            return self.arguments.is_none() && self.add_no_arguments();
        };
        let arguments = match serde_json::from_str::<Value>(&self.text[begin..end]) {
            Ok(Value::String(inner)) => serde_json::from_str::<Value>(&inner).ok(),
            Ok(value) => Some(value),
            Err(_) => None,
        };
        let is_whole =
            self.is_bare_arguments() || serde_json::from_str::<Value>(&self.text).is_ok();
        is_whole && arguments.is_some_and(|arguments| arguments.is_object())
    }

    /// `{"name": "now"}` calls with `{}`.
    fn add_no_arguments(&mut self) -> bool {
        if serde_json::from_str::<Value>(&self.text).is_err() {
            return false;
        }
        let begin = self.text.len();
        self.text.push_str("{}");
        self.scan.at = self.text.len();
        self.arguments = Some((begin, Some(begin + 2)));
        true
    }
}
