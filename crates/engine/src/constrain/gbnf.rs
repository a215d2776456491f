//! llama.cpp's grammars (GBNF) as Lark.
//!
//! The one idea: GBNF reads characters, Lark reads terminals that are as long as they can be. A rule
//! that does not come back to itself is regular, so it becomes one *terminal* with everything it names
//! inside: there both mean the same. Only rules that recurse stay rules; between the terminals in them
//! the longest match counts, which can only make the language narrower, never wider.
//!
//! Source: <https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md>.

use std::collections::{BTreeMap, BTreeSet};

use super::Limits;
use super::error::CompileError;

/// Whether a text is GBNF and not Lark: only GBNF defines with `::=`.
pub(super) fn is_likely(text: &str) -> bool {
    text.lines().any(|line| {
        let name = line.split("::=").next().unwrap_or_default().trim();
        line.contains("::=") && !name.is_empty() && name.chars().all(is_name)
    })
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '-' || letter == '_'
}

/// The Lark grammar of the same texts.
///
/// # Errors
///
/// [`CompileError::Grammar`], with the line.
pub(super) fn to_lark(text: &str, limits: &Limits) -> Result<String, CompileError> {
    let rules = Parser::new(text).rules()?;
    if !rules.contains_key("root") {
        return Err(refused("has no rule 'root'"));
    }
    let unknown = rules
        .values()
        .flat_map(names)
        .find(|name| !rules.contains_key(*name));
    if let Some(name) = unknown {
        let name: String = name.chars().take(60).collect();
        return Err(refused(format!(
            "names a rule '{name}' that it does not have"
        )));
    }
    let recursive = recursive(&rules);
    let spelling: BTreeMap<&str, String> = rules
        .keys()
        .enumerate()
        .map(|(idx, name)| match recursive.contains(name.as_str()) {
            true => (name.as_str(), format!("rule_{idx}")),
            false => (name.as_str(), format!("TERMINAL_{idx}")),
        })
        .collect();
    let mut lark = format!("start: {}\n", spelling["root"]);
    for (name, body) in &rules {
        lark.push_str(&format!("{}: ", spelling[name.as_str()]));
        body.write(&spelling, &mut lark);
        lark.push('\n');
        // Longer names: the text grows, but not out of proportion.
        if lark.len() > 8 * limits.grammar_bytes_max {
            return Err(refused("is too large"));
        }
    }
    Ok(lark)
}

fn refused(reason: impl Into<String>) -> CompileError {
    CompileError::Grammar {
        reason: reason.into(),
    }
}

/// What a rule says.
#[derive(Debug)]
enum Body {
    Choice(Vec<Body>),
    Sequence(Vec<Body>),
    /// `*`, `+`, `?`, `{m,n}` as written.
    Repeated(Box<Body>, String),
    Name(String),
    Text(String),
    /// A regular expression of one character.
    Letter(String),
}

impl Body {
    fn write(&self, spelling: &BTreeMap<&str, String>, lark: &mut String) {
        match self {
            Body::Choice(branches) => join(branches, " | ", spelling, lark),
            Body::Sequence(items) if items.is_empty() => lark.push_str("\"\""),
            Body::Sequence(items) => join(items, " ", spelling, lark),
            Body::Repeated(item, times) => {
                item.write(spelling, lark);
                lark.push_str(times);
            }
            Body::Name(name) => lark.push_str(&spelling[name.as_str()]),
            Body::Text(text) => {
                lark.push_str(&serde_json::Value::from(text.as_str()).to_string());
            }
            Body::Letter(regex) => lark.push_str(&format!("/{regex}/")),
        }
    }
}

fn join(bodies: &[Body], between: &str, spelling: &BTreeMap<&str, String>, lark: &mut String) {
    lark.push('(');
    for (idx, body) in bodies.iter().enumerate() {
        if idx > 0 {
            lark.push_str(between);
        }
        body.write(spelling, lark);
    }
    lark.push(')');
}

/// The rules a body names.
fn names(body: &Body) -> Vec<&str> {
    match body {
        Body::Choice(bodies) | Body::Sequence(bodies) => bodies.iter().flat_map(names).collect(),
        Body::Repeated(body, _) => names(body),
        Body::Name(name) => vec![name],
        Body::Text(_) | Body::Letter(_) => Vec::new(),
    }
}

/// Rules that come back to themselves, and rules that name such a one.
fn recursive(rules: &BTreeMap<String, Body>) -> BTreeSet<&str> {
    // What is left when rules that name only regular ones are taken away, again and again.
    let mut left: BTreeMap<&str, BTreeSet<&str>> = rules
        .iter()
        .map(|(name, body)| (name.as_str(), names(body).into_iter().collect()))
        .collect();
    loop {
        let regular: Vec<&str> = left
            .iter()
            .filter(|(_, named)| named.iter().all(|name| !left.contains_key(name)))
            .map(|(&name, _)| name)
            .collect();
        if regular.is_empty() {
            return left.into_keys().collect();
        }
        for name in regular {
            left.remove(name);
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
    text: &'a str,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parser<'a> {
        Parser { rest: text, text }
    }

    fn refuse<T>(&self, what: &str) -> Result<T, CompileError> {
        let line = self.text[..self.text.len() - self.rest.len()]
            .matches('\n')
            .count()
            + 1;
        Err(refused(format!("{what} (line {line})")))
    }

    fn rules(mut self) -> Result<BTreeMap<String, Body>, CompileError> {
        let mut rules = BTreeMap::new();
        self.skip_blanks(Lines::All);
        while !self.rest.is_empty() {
            let Some(name) = self.name() else {
                return self.refuse("expects the name of a rule");
            };
            self.skip_blanks(Lines::All);
            if !self.take("::=") {
                return self.refuse("expects '::='");
            }
            self.skip_blanks(Lines::All);
            let body = self.choice(Lines::One)?;
            if rules.insert(name, body).is_some() {
                return self.refuse("defines a rule twice");
            }
            if !self.rest.is_empty() && !self.rest.starts_with(['\n', '\r']) {
                return self.refuse("expects the end of the line");
            }
            self.skip_blanks(Lines::All);
        }
        Ok(rules)
    }

    fn skip_blanks(&mut self, lines: Lines) {
        loop {
            let is_blank = |letter: char| match lines {
                Lines::All => letter.is_ascii_whitespace(),
                Lines::One => letter == ' ' || letter == '\t',
            };
            self.rest = self.rest.trim_start_matches(is_blank);
            if !self.rest.starts_with('#') {
                return;
            }
            let end = self.rest.find(['\n', '\r']).unwrap_or(self.rest.len());
            self.rest = &self.rest[end..];
        }
    }

    fn take(&mut self, word: &str) -> bool {
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn name(&mut self) -> Option<String> {
        let end = self
            .rest
            .find(|letter| !is_name(letter))
            .unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!name.is_empty()).then(|| name.to_owned())
    }

    fn choice(&mut self, lines: Lines) -> Result<Body, CompileError> {
        let mut branches = vec![self.sequence(lines)?];
        while self.take("|") {
            // The next line goes on behind a bar.
            self.skip_blanks(Lines::All);
            branches.push(self.sequence(lines)?);
        }
        Ok(match branches.len() {
            1 => branches.remove(0),
            _ => Body::Choice(branches),
        })
    }

    fn sequence(&mut self, lines: Lines) -> Result<Body, CompileError> {
        let mut items = Vec::new();
        while let Some(mut item) = self.item()? {
            while let Some(times) = self.times()? {
                // A second count would be read as part of the first.
                if matches!(item, Body::Repeated(..)) {
                    item = Body::Sequence(vec![item]);
                }
                item = Body::Repeated(Box::new(item), times);
            }
            items.push(item);
            self.skip_blanks(lines);
        }
        Ok(Body::Sequence(items))
    }

    fn item(&mut self) -> Result<Option<Body>, CompileError> {
        let Some(first) = self.rest.chars().next() else {
            return Ok(None);
        };
        let item = match first {
            '"' => Body::Text(self.quoted()?),
            '[' => Body::Letter(self.class()?),
            '.' => {
                self.rest = &self.rest[1..];
                Body::Letter("(?s:.)".to_owned())
            }
            '(' => {
                self.rest = &self.rest[1..];
                self.skip_blanks(Lines::All);
                let inner = self.choice(Lines::All)?;
                if !self.take(")") {
                    return self.refuse("expects ')'");
                }
                Body::Sequence(vec![inner])
            }
            '<' | '!' => {
                return self.refuse("asks for a token by name or number, which is not supported");
            }
            letter if is_name(letter) => match self.name() {
                Some(name) => Body::Name(name),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Some(item))
    }

    fn times(&mut self) -> Result<Option<String>, CompileError> {
        for times in ["*", "+", "?"] {
            if self.take(times) {
                return Ok(Some(times.to_owned()));
            }
        }
        if !self.rest.starts_with('{') {
            return Ok(None);
        }
        let Some(end) = self.rest.find('}') else {
            return self.refuse("expects '}'");
        };
        let inner: String = self.rest[1..end]
            .chars()
            .filter(|c| !c.is_whitespace())
            .collect();
        self.rest = &self.rest[end + 1..];
        let counts: Vec<&str> = inner.split(',').collect();
        let is_count =
            |count: &&str| !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
        let is_valid = match &counts[..] {
            [exactly] => is_count(exactly),
            [least, most] => is_count(least) && (most.is_empty() || is_count(most)),
            _ => false,
        };
        match is_valid {
            true => Ok(Some(format!("{{{inner}}}"))),
            false => self.refuse("expects '{m}', '{m,}' or '{m,n}'"),
        }
    }

    fn quoted(&mut self) -> Result<String, CompileError> {
        self.rest = &self.rest[1..];
        let mut text = String::new();
        while !self.rest.starts_with('"') {
            match self.letter()? {
                Some(letter) => text.push(letter),
                None => return self.refuse("has a text without an end"),
            }
        }
        self.rest = &self.rest[1..];
        Ok(text)
    }

    fn class(&mut self) -> Result<String, CompileError> {
        self.rest = &self.rest[1..];
        let mut class = String::from("[");
        if self.take("^") {
            class.push('^');
        }
        let mut is_empty = true;
        while !self.rest.starts_with(']') {
            let Some(first) = self.letter()? else {
                return self.refuse("has a class without an end");
            };
            class.push_str(&in_class(first));
            is_empty = false;
            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.rest = &self.rest[1..];
                let Some(last) = self.letter()? else {
                    return self.refuse("has a class without an end");
                };
                if last < first {
                    return self.refuse("has a range that ends before it begins");
                }
                class.push_str(&format!("-{}", in_class(last)));
            }
        }
        self.rest = &self.rest[1..];
        if is_empty {
            return self.refuse("has an empty class");
        }
        class.push(']');
        Ok(class)
    }

    /// The next character of a text or class, escapes read; `None` at the end.
    fn letter(&mut self) -> Result<Option<char>, CompileError> {
        let mut letters = self.rest.chars();
        let Some(letter) = letters.next() else {
            return Ok(None);
        };
        if letter != '\\' {
            self.rest = letters.as_str();
            return Ok(Some(letter));
        }
        let Some(escape) = letters.next() else {
            return self.refuse("ends within an escape");
        };
        self.rest = letters.as_str();
        let num_digits = match escape {
            'n' => return Ok(Some('\n')),
            'r' => return Ok(Some('\r')),
            't' => return Ok(Some('\t')),
            '\\' | '"' | '[' | ']' | '-' | '^' | '/' => return Ok(Some(escape)),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => return self.refuse("has an escape that is not known"),
        };
        let digits = self.rest.get(..num_digits);
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        match code.and_then(char::from_u32) {
            Some(letter) => {
                self.rest = &self.rest[num_digits..];
                Ok(Some(letter))
            }
            None => self.refuse("has an escape that is no character"),
        }
    }
}

/// A character as it stands in a class of a regular expression.
fn in_class(letter: char) -> String {
    format!("\\u{{{:X}}}", u32::from(letter))
}

/// Whether an expression goes on in the next line.
#[derive(Clone, Copy)]
enum Lines {
    /// Only behind a bar.
    One,
    /// Within brackets.
    All,
}
