//! Measures the values that a template makes, so that none is deeper, larger or lazier than it looks.
//!
//! `bounds.rs` sends every new value through [`KEPT_FILTER`], and through [`NAMESPACE_FILTER`] what a namespace is to
//! remember. Lazy lists (`a + b`, `a * 1000`, `a[1:]`) become real ones: joined lazily, they would cost nothing to
//! double and a recursion for each joint to read. A namespace is the only thing that can be changed after it was made,
//! so if it keeps only data and never a namespace, no value can contain itself.
//!
//! Not here: where the filters are put.

use std::fmt;

use minijinja::value::{DynObject, ObjectRepr, Tuple, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::LIMITS;

/// The filter for a value that may be kept. Templates could name it, but none would.
pub(super) const KEPT_FILTER: &str = "kept_value";

/// The filter for a value that a namespace is to remember.
pub(super) const NAMESPACE_FILTER: &str = "kept_in_namespace";

/// Adds both filters.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter(KEPT_FILTER, kept_value);
    environment.add_filter(NAMESPACE_FILTER, kept_in_namespace);
}

/// A limit that a value exceeds.
#[derive(Debug)]
struct LimitReached(String);

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LimitReached {}

/// The limit, if `error` tells of one.
pub(super) fn reached_limit(error: &minijinja::Error) -> Option<&str> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(LimitReached(limit)) = cause.downcast_ref() {
            return Some(limit);
        }
        source = cause.source();
    }
    None
}

/// The error that tells of a limit.
pub(super) fn too_much(limit: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, limit.clone()).with_source(LimitReached(limit))
}

fn kept_value(state: &State, value: Value) -> Result<Value, Error> {
    keep(state, value, Owner::Variable)
}

fn kept_in_namespace(state: &State, value: Value) -> Result<Value, Error> {
    keep(state, value, Owner::Namespace)
}

/// What is to keep a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Variable,
    Namespace,
}

fn keep(state: &State, value: Value, owner: Owner) -> Result<Value, Error> {
    let Some(object) = value.as_object() else {
        return Ok(value);
    };
    let mut survey = Survey {
        state,
        num_items: 0,
        num_bytes: 0,
    };
    let settled = match (role(object), owner) {
        (Role::Data, _) => survey.settled(&value, 1)?,
        // Its values were measured when they were set, all but those it was made with.
        (Role::Namespace, Owner::Variable) => {
            for (_, field) in object.try_iter_pairs().into_iter().flatten() {
                survey.settled(&field, 2)?;
            }
            None
        }
        (Role::Engine, Owner::Variable) => None,
        (Role::Namespace | Role::Engine, Owner::Namespace) => {
            let reason = "a namespace can hold text, numbers, lists and dicts, but no namespace, macro or loop";
            return Err(Error::new(ErrorKind::InvalidOperation, reason));
        }
    };
    Ok(settled.unwrap_or(value))
}

/// What an object is to us.
enum Role {
    /// A list, tuple or dict.
    Data,
    Namespace,
    /// A loop, macro or the like, which holds no values that we could reach.
    Engine,
}

fn role(object: &DynObject) -> Role {
    // minijinja keeps these types to itself.
    match object.type_name() {
        "minijinja::value::namespace_object::Namespace" => Role::Namespace,
        name if name.starts_with("minijinja::vm::") => Role::Engine,
        _ if object.repr() == ObjectRepr::Plain => Role::Engine,
        _ => Role::Data,
    }
}

/// Walks through one value as printing it would.
struct Survey<'a> {
    state: &'a State<'a, 'a>,
    num_items: u64,
    num_bytes: usize,
}

impl Survey<'_> {
    /// `value` without lazy lists, or `None` if it has none. `depth` is the number of containers around what it holds.
    fn settled(&mut self, value: &Value, depth: usize) -> Result<Option<Value>, Error> {
        self.count(value)?;
        let Some(object) = value.as_object() else {
            return Ok(None);
        };
        match role(object) {
            Role::Data if depth <= LIMITS.value_depth_max => (),
            Role::Data => {
                let limit = format!("{} lists within one another", LIMITS.value_depth_max);
                return Err(too_much(limit));
            }
            Role::Namespace => {
                let reason = "a list or dict cannot hold a namespace";
                return Err(Error::new(ErrorKind::InvalidOperation, reason));
            }
            Role::Engine if depth == 1 => return Ok(None),
            Role::Engine => {
                let reason = "a list or dict cannot hold a macro or loop";
                return Err(Error::new(ErrorKind::InvalidOperation, reason));
            }
        }
        match value.kind() {
            ValueKind::Map => self.settled_map(object, depth),
            _ => self.settled_list(value, depth),
        }
    }

    fn settled_list(&mut self, value: &Value, depth: usize) -> Result<Option<Value>, Error> {
        let is_lazy = value.kind() == ValueKind::Iterable;
        let mut items: Option<Vec<Value>> = is_lazy.then(Vec::new);
        for (idx, item) in value.try_iter()?.enumerate() {
            let settled = self.settled(&item, depth + 1)?;
            if settled.is_some() && items.is_none() {
                items = Some(value.try_iter()?.take(idx).collect());
            }
            if let Some(items) = &mut items {
                items.push(settled.unwrap_or(item));
            }
        }
        let is_tuple = value.is_tuple();
        Ok(items.map(|items| match is_tuple {
            true => Value::from(Tuple::from(items)),
            false => Value::from(items),
        }))
    }

    fn settled_map(&mut self, object: &DynObject, depth: usize) -> Result<Option<Value>, Error> {
        let mut fields = Vec::new();
        let mut has_changed = false;
        for (key, field) in object.try_iter_pairs().into_iter().flatten() {
            self.count(&key)?;
            let settled = self.settled(&field, depth + 1)?;
            has_changed |= settled.is_some();
            fields.push((key, settled.unwrap_or(field)));
        }
        Ok(has_changed.then(|| fields.into_iter().collect()))
    }

    fn count(&mut self, value: &Value) -> Result<(), Error> {
        /// A visit is far cheaper than an instruction.
        const ITEMS_PER_STEP: u64 = 8;
        if value.kind() == ValueKind::Invalid {
            return Err(Error::new(ErrorKind::InvalidOperation, value.to_string()));
        }
        self.num_items += 1;
        self.num_bytes += value.as_str().map_or(0, str::len);
        if self.num_items.is_multiple_of(ITEMS_PER_STEP) {
            self.state.consume_fuel(1)?;
        }
        if self.num_items > LIMITS.value_items_max {
            return Err(too_much(format!(
                "{} items in a value",
                LIMITS.value_items_max
            )));
        }
        if self.num_bytes > LIMITS.output_bytes_max {
            return Err(too_much(format!(
                "{} bytes in a value",
                LIMITS.output_bytes_max
            )));
        }
        Ok(())
    }
}
