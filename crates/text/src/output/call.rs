//! One call's JSON as it arrives: `{"name": "f", "arguments": {…}}`, or the arguments alone behind a name.
//!
//! The one idea: a scanner that knows only strings, depth and the keys of the outermost object. As soon as the name is
//! known and the arguments have begun, they pass through as they arrive; whether they are JSON is
//! judged when they are whole. What a call comes to depends on its bytes one by one, never on how they arrive.

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
    /// It is no call, and nothing of it was told: [`Call::rest`] is what it was. So many bytes of the text come after that.
    NoCall { num_left: usize },
    /// It began, as was told, and it will never end; so many bytes of the text come after what is broken.
    Broken { num_left: usize },
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
    /// The text is the arguments themselves.
    is_bare: bool,
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
            is_bare: false,
            arguments: None,
            told: 0,
        }
    }

    /// A call whose name is known; its arguments come.
    pub(super) fn with_name(name: String) -> Call {
        Call {
            name: Some(name),
            is_bare: true,
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
        if from >= to || (end.is_none() && self.is_in_string(begin)) {
            return None;
        }
        self.told = to;
        if self.is_in_string(begin) {
            return unquoted(&self.text[begin..to]);
        }
        Some(self.text[from..to].to_owned())
    }

    /// What is readable of arguments in a string that will never be whole.
    pub(super) fn take_cut_arguments(&mut self) -> Option<String> {
        let (begin, end) = self.arguments.filter(|_| self.is_name_told)?;
        if end.is_some() || !self.is_in_string(begin) {
            return None;
        }
        let said = &self.text[begin..];
        // The last letter may be half an escape, at most two of `\uXXXX`.
        (0..12)
            .filter_map(|cut| said.get(..said.len().checked_sub(cut)?))
            .find_map(|said| unquoted(&format!("{said}\"")))
    }

    fn is_in_string(&self, begin: usize) -> bool {
        self.text[begin..].starts_with('"')
    }

    /// All of it, for a call that is none.
    pub(super) fn rest(self) -> String {
        self.text
    }

    /// Takes more text; `tools` are the names that count.
    pub(super) fn push(&mut self, text: &str, tools: &[String], is_end: bool) -> Outcome {
        self.text.push_str(text);
        while self.scan.at < self.text.len() {
            let at = self.scan.at;
            let is_too_long =
                !self.is_begun && at >= HEAD_BYTES_MAX && self.text.is_char_boundary(at);
            let advanced = match is_too_long {
                true => Err(()),
                false => self.advance(self.text.as_bytes()[at], tools),
            };
            match advanced {
                Ok(false) => self.is_begun |= self.name.is_some() && self.arguments.is_some(),
                Ok(true) => {
                    let num_left = self.text.len() - self.scan.at;
                    self.text.truncate(self.scan.at);
                    if self.is_sound() {
                        self.is_begun = true;
                        return Outcome::Complete { num_left };
                    }
                    return self.fail(num_left);
                }
                Err(()) => {
                    // From this byte on it is no call.
                    let num_left = self.text.len() - at;
                    self.text.truncate(at);
                    self.scan.at = at;
                    return self.fail(num_left);
                }
            }
        }
        match is_end {
            true => self.fail(0),
            false => Outcome::Going,
        }
    }

    fn fail(&self, num_left: usize) -> Outcome {
        match self.is_begun {
            true => Outcome::Broken { num_left },
            false => Outcome::NoCall { num_left },
        }
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
            self.begin_value(at, byte)?;
        }
        match byte {
            _ if self.is_bare && self.scan.depth == 0 && !is_space => {
                if byte != b'{' {
                    return Err(());
                }
                self.scan.depth = 1;
                self.arguments = Some((at, None));
            }
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
            // A marker, or prose: the JSON broke off.
            _ if !is_space && !byte.is_ascii_alphanumeric() && !b":,+-.".contains(&byte) => {
                return Err(());
            }
            _ => {}
        }
        Ok(false)
    }

    /// A string of the outermost object ended at its quote: a key, or a value.
    fn end_string(&mut self, quote_at: usize) -> Result<(), ()> {
        // A call that began stays one, whatever else is said in it.
        if self.scan.key.is_some() || self.is_bare || self.is_begun {
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

    fn begin_value(&mut self, at: usize, byte: u8) -> Result<(), ()> {
        self.scan.value_at = Some(at);
        if matches!(self.scan.key.as_deref(), Some("arguments" | "parameters"))
            && self.arguments.is_none()
        {
            // An object, or one in a string.
            if byte != b'{' && byte != b'"' {
                return Err(());
            }
            self.arguments = Some((at, None));
        }
        Ok(())
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
            // The first one counts, which may be told already.
            Some("name") if self.name.is_none() => {
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
        if let Some((_, end @ None)) = self.arguments.as_mut().filter(|_| self.is_bare) {
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
        let is_whole = self.is_bare || serde_json::from_str::<Value>(&self.text).is_ok();
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

/// The text in a JSON string, unless it is none or empty.
fn unquoted(json: &str) -> Option<String> {
    serde_json::from_str::<String>(json)
        .ok()
        .filter(|text| !text.is_empty())
}
