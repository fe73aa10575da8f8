//! Types of Cassandra's that CQL has no name for, by the name of their class: `LexicalUUIDType`,
//! `CompositeType(…)`, `DynamicCompositeType(…)`, and classes that are not known here.
//!
//! Owns: their names, the check, the order and the text of their values.
//!
//! A composite value is a sequence of components: the length of the value as a 16-bit number, the value, and an end
//! byte (0; 1 and -1 for bounds of slices, in the last component only). The components of a `CompositeType` have the
//! types of the declaration in turn, and two bytes `FFFF` in front mark a static one. A component of a
//! `DynamicCompositeType` begins with its type: `80` and the byte of an alias, or the 16-bit length of a class name
//! and that name.
//!
//! Source: `AbstractCompositeType`, `CompositeType`, `DynamicCompositeType`, `LexicalUUIDType`.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use codec::Writer;

use crate::marshal::{PREFIX, parse_marshal};
use crate::{CqlType, TypeError, timeuuid};

/// In front of a static composite.
const STATIC_MARKER: [u8; 2] = [0xff, 0xff];
/// Longest value of a component, and longest class name.
const COMPONENT_BYTES_MAX: usize = 65_535;
const CLASS_NAME_BYTES_MAX: usize = 0x7fff;

/// A type by the name of its class.
#[derive(Clone, Debug)]
pub struct CustomType {
    name: Arc<str>,
    kind: CustomKind,
}

/// The classes whose values are understood.
#[derive(Clone, Debug)]
pub enum CustomKind {
    /// UUIDs in the order of Java's `UUID.compareTo`.
    LexicalUuid,
    /// Components of declared types, at least one.
    Composite(Box<[Component]>),
    /// Components that name their types; those of the declared aliases, in the order of the name.
    DynamicComposite(Box<[(u8, Component)]>),
    /// Any other class: opaque bytes in unsigned byte order.
    Unknown,
}

/// Type of a component.
#[derive(Clone, Debug)]
pub struct Component {
    /// The type.
    pub ty: CqlType,
    /// In descending order.
    pub reversed: bool,
    /// Name of the class, as components of different types are ordered by.
    class: Arc<str>,
}

// The name says it all.
impl PartialEq for CustomType {
    fn eq(&self, other: &CustomType) -> bool {
        self.name == other.name
    }
}

impl Eq for CustomType {}

impl Hash for CustomType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Component {
    /// A component's type.
    fn new(ty: CqlType, reversed: bool) -> Component {
        let name = ty.freeze().to_marshal_name();
        let frozen = name.strip_prefix(PREFIX).and_then(|n| n.strip_prefix("FrozenType("));
        let class = frozen.unwrap_or(&name).split(['(', ')']).next().unwrap_or("").into();
        Component { ty, reversed, class }
    }

    /// Name of the class without its package.
    pub fn simple_class(&self) -> &str {
        self.class.rsplit('.').next().unwrap_or(&self.class)
    }

    /// Name of the class with its package.
    pub fn class(&self) -> &str {
        &self.class
    }

    fn marshal_name(&self) -> String {
        if self.reversed { self.ty.to_marshal_name_reversed() } else { self.ty.to_marshal_name() }
    }

    fn compare(&self, a: &[u8], b: &[u8], depth: u32) -> Ordering {
        let order = self.ty.compare_at(a, b, depth);
        if self.reversed { order.reverse() } else { order }
    }

    /// Order of the types of two components of a dynamic composite: by the name of the class, where
    /// `ReversedType` is one of its own. Types of one class with other parameters, of which Cassandra
    /// takes the first, are ordered by these.
    fn compare_type(&self, other: &Component) -> Ordering {
        let outer = |c: &Component, both: bool| match c.reversed && !both {
            true => ("ReversedType".to_owned(), format!("{PREFIX}ReversedType")),
            false => (c.simple_class().to_owned(), c.class.to_string()),
        };
        let both = self.reversed && other.reversed;
        outer(self, both).cmp(&outer(other, both)).then_with(|| {
            if self.ty == other.ty {
                Ordering::Equal
            } else {
                self.ty.to_marshal_name().cmp(&other.ty.to_marshal_name())
            }
        })
    }
}

impl CustomType {
    /// `LexicalUUIDType`.
    pub fn lexical_uuid() -> CustomType {
        CustomType {
            name: format!("{PREFIX}LexicalUUIDType").into(),
            kind: CustomKind::LexicalUuid,
        }
    }

    /// `CompositeType` of component types, with those in descending order marked. `None`: there are
    /// none.
    pub fn composite(types: Vec<(CqlType, bool)>) -> Option<CustomType> {
        if types.is_empty() {
            return None;
        }
        let components: Box<[Component]> =
            types.into_iter().map(|(ty, reversed)| Component::new(ty, reversed)).collect();
        let names: Vec<String> = components.iter().map(Component::marshal_name).collect();
        let name = format!("{PREFIX}CompositeType({})", names.join(",")).into();
        Some(CustomType { name, kind: CustomKind::Composite(components) })
    }

    /// `DynamicCompositeType` with aliases; of one that is given twice the last counts.
    pub fn dynamic_composite(types: Vec<(u8, CqlType, bool)>) -> CustomType {
        let mut aliases: Vec<(u8, Component)> = Vec::new();
        for (alias, ty, reversed) in types {
            let component = Component::new(ty, reversed);
            match aliases.iter_mut().find(|(known, _)| *known == alias) {
                Some((_, known)) => *known = component,
                None => aliases.push((alias, component)),
            }
        }
        // Cassandra prints them in the order of its hash map: buckets by the low bits of the byte.
        let mut buckets = 16usize;
        while aliases.len() > buckets / 4 * 3 {
            buckets = buckets.saturating_mul(2);
        }
        aliases.sort_by_key(|(alias, _)| usize::from(*alias) % buckets);
        let names: Vec<String> = aliases
            .iter()
            .map(|(alias, c)| format!("{}=>{}", char::from(*alias), c.marshal_name()))
            .collect();
        let name = format!("{PREFIX}DynamicCompositeType({})", names.join(",")).into();
        CustomType { name, kind: CustomKind::DynamicComposite(aliases.into()) }
    }

    /// A class that is not known, by its full name with parameters.
    pub fn unknown(name: &str) -> CustomType {
        CustomType { name: name.into(), kind: CustomKind::Unknown }
    }

    /// The full name of the class with its parameters.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the known properties of the class.
    pub fn kind(&self) -> &CustomKind {
        &self.kind
    }

    /// True for both kinds of composites.
    pub fn is_composite(&self) -> bool {
        matches!(self.kind, CustomKind::Composite(_) | CustomKind::DynamicComposite(_))
    }

    /// Component types that the declaration names.
    pub fn components(&self) -> Box<dyn Iterator<Item = &Component> + '_> {
        match &self.kind {
            CustomKind::Composite(components) => Box::new(components.iter()),
            CustomKind::DynamicComposite(aliases) => Box::new(aliases.iter().map(|(_, c)| c)),
            CustomKind::LexicalUuid | CustomKind::Unknown => Box::new(std::iter::empty()),
        }
    }

    /// True if the type reads and orders all values of `previous` in the same way: a composite may
    /// have more components, a dynamic one more aliases.
    pub(crate) fn is_compatible_with(&self, previous: &CustomType) -> bool {
        match (&self.kind, &previous.kind) {
            (CustomKind::Composite(new), CustomKind::Composite(old)) => {
                new.len() >= old.len()
                    && new
                        .iter()
                        .zip(old)
                        .all(|(n, o)| n.reversed == o.reversed && n.ty.is_compatible_with(&o.ty))
            }
            (CustomKind::DynamicComposite(new), CustomKind::DynamicComposite(old)) => {
                old.iter().all(|(alias, o)| {
                    let same = |(a, n): &(u8, Component)| {
                        a == alias && n.reversed == o.reversed && n.ty == o.ty
                    };
                    new.iter().any(same)
                })
            }
            _ => self == previous,
        }
    }

    /// Reads the components of a composite value. Empty for other kinds.
    pub fn parts<'a>(&'a self, value: &'a [u8]) -> Parts<'a> {
        let is_static =
            matches!(self.kind, CustomKind::Composite(_)) && value.starts_with(&STATIC_MARKER);
        let rest = if is_static { value.get(2..).unwrap_or_default() } else { value };
        let rest = if self.is_composite() { rest } else { &[] };
        Parts { kind: &self.kind, rest, index: 0, is_static }
    }

    pub(crate) fn compare(&self, a: &[u8], b: &[u8], depth: u32) -> Ordering {
        match &self.kind {
            CustomKind::Unknown => a.cmp(b),
            CustomKind::LexicalUuid => compare_lexical(a, b),
            CustomKind::Composite(_) | CustomKind::DynamicComposite(_) => {
                if a.is_empty() || b.is_empty() {
                    return (!a.is_empty()).cmp(&!b.is_empty());
                }
                let (mut left, mut right) = (self.parts(a), self.parts(b));
                right.is_static.cmp(&left.is_static).then_with(|| left.compare(&mut right, depth))
            }
        }
    }

    /// Checks a value.
    ///
    /// # Errors
    /// `Marshal` with Cassandra's text.
    pub(crate) fn validate(&self, bytes: &[u8], depth: u32) -> Result<(), TypeError> {
        match &self.kind {
            CustomKind::Unknown => Ok(()),
            CustomKind::LexicalUuid if bytes.is_empty() || bytes.len() == 16 => Ok(()),
            CustomKind::LexicalUuid => {
                Err(TypeError::Marshal(format!("UUID should be 16 or 0 bytes ({})", bytes.len())))
            }
            CustomKind::Composite(_) | CustomKind::DynamicComposite(_) => {
                let mut parts = self.parts(bytes);
                while !parts.rest.is_empty() {
                    let index = parts.index;
                    let (component, value) = parts.read_value()?;
                    component.ty.validate_at(value, depth)?;
                    let end = parts.read_end(index)?;
                    if end != 0 && !parts.rest.is_empty() {
                        return Err(TypeError::Marshal(format!(
                            "Invalid bytes remaining after an end-of-component at component{index}"
                        )));
                    }
                }
                Ok(())
            }
        }
    }

    /// Bytes of a value from its text: components between colons, `\:` for a colon in one, `!` or
    /// `_` at the end for an end byte of 1 or -1; of a dynamic one `alias@text` or `class@text`.
    ///
    /// # Errors
    /// `Marshal`: the text of a component is none of its type, or there are too many.
    pub(crate) fn parse_text(
        &self,
        source: &str,
        parse: impl Fn(&CqlType, &str) -> Result<Vec<u8>, TypeError>,
    ) -> Result<Vec<u8>, TypeError> {
        let mut out = Vec::new();
        for (index, part) in crate::literal::split_unescaped(source).into_iter().enumerate() {
            if part == "!" || part == "_" {
                let Some(end) = out.last_mut() else {
                    return Err(TypeError::Marshal(format!(
                        "'{part}' must follow a component in '{source}'"
                    )));
                };
                *end = if part == "!" { 1 } else { 0xff };
                return Ok(out);
            }
            let (component, text) = self.part_type(index, part, source, &mut out)?;
            let mut text = text.replace("\\:", ":");
            if text.ends_with('!') {
                text.pop();
            }
            let value = parse(&component.ty, &text)?;
            let length = u16::try_from(value.len()).map_err(|_| {
                TypeError::Marshal(format!(
                    "component {index} of {} bytes is longer than maximum of \
                     {COMPONENT_BYTES_MAX}",
                    value.len()
                ))
            })?;
            out.put_u16(length);
            out.extend(value);
            out.push(0);
        }
        Ok(out)
    }

    /// The type of a component in text, which a dynamic composite also writes, and the rest.
    fn part_type<'t>(
        &self,
        index: usize,
        part: &'t str,
        source: &str,
        out: &mut Vec<u8>,
    ) -> Result<(Component, &'t str), TypeError> {
        let aliases = match &self.kind {
            CustomKind::DynamicComposite(aliases) => aliases,
            CustomKind::Composite(components) => {
                return components.get(index).cloned().map(|c| (c, part)).ok_or_else(|| {
                    TypeError::Marshal(format!(
                        "too many components in '{source}': type '{}' has {}",
                        self.name,
                        components.len()
                    ))
                });
            }
            CustomKind::LexicalUuid | CustomKind::Unknown => {
                return Err(TypeError::Marshal(format!("'{}' has no components", self.name)));
            }
        };
        let trimmed = part.trim_end_matches('@');
        let (name, text) = trimmed.split_once('@').unwrap_or((trimmed, ""));
        if (name.is_empty() && text.is_empty()) || text.contains('@') {
            return Err(TypeError::Marshal(format!("Invalid component representation: {part}")));
        }
        if let [alias] = name.as_bytes()
            && let Some((_, component)) = aliases.iter().find(|(known, _)| known == alias)
        {
            out.extend([0x80, *alias]);
            return Ok((component.clone(), text));
        }
        let component = inline_component(name).ok_or_else(|| {
            let package = if name.contains('.') { "" } else { PREFIX };
            TypeError::Marshal(format!("Unable to find abstract-type class '{package}{name}'"))
        })?;
        let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
        if usize::from(length) > CLASS_NAME_BYTES_MAX {
            return Err(TypeError::Marshal(format!("Invalid component representation: {part}")));
        }
        out.put_u16(length);
        out.extend(name.as_bytes());
        Ok((component, text))
    }

    /// The value as text (`getString`), which [`CqlType::from_string`] reads back. `None`: the bytes
    /// are not a value.
    pub(crate) fn plain(
        &self,
        bytes: &[u8],
        print: impl Fn(&CqlType, &[u8]) -> String,
    ) -> Option<String> {
        match &self.kind {
            CustomKind::Unknown => None,
            CustomKind::LexicalUuid => Some(timeuuid::format_uuid(bytes.try_into().ok()?)),
            CustomKind::Composite(_) | CustomKind::DynamicComposite(_) => {
                let mut parts = self.parts(bytes);
                let mut out = String::new();
                while !parts.rest.is_empty() {
                    let index = parts.index;
                    if index > 0 {
                        out.push(':');
                    }
                    if let Some(name) = parts.type_name() {
                        out.push_str(&name);
                        out.push('@');
                    }
                    let (component, value) = parts.read_value().ok()?;
                    let text = print(&component.ty, value).replace(':', "\\:");
                    let ambiguous = text.ends_with(['\\', '!']);
                    out.push_str(&text);
                    if ambiguous {
                        out.push('!');
                    }
                    match parts.read_end(index).ok()? {
                        0 => {}
                        end => {
                            out.push_str(if end < 0 { ":_" } else { ":!" });
                            break;
                        }
                    }
                }
                Some(out)
            }
        }
    }
}

/// A type that a value of a dynamic composite names. Composites and counters are not taken: the depth
/// of a value is bounded by its type alone.
fn inline_component(name: &str) -> Option<Component> {
    let (ty, reversed) = parse_marshal(name).ok()?;
    let refused = |t: &CqlType| {
        matches!(t, CqlType::Custom(c) if !matches!(c.kind, CustomKind::LexicalUuid))
            || t.is_counter()
    };
    (!ty.any(&mut |t| refused(t))).then(|| Component::new(ty, reversed))
}

/// The components of a composite value that are left to read.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    kind: &'a CustomKind,
    rest: &'a [u8],
    index: usize,
    is_static: bool,
}

/// A component of a value.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// Its type.
    pub component: std::borrow::Cow<'a, Component>,
    /// Its value.
    pub value: &'a [u8],
    /// The byte at its end.
    pub end: i8,
}

impl<'a> Parts<'a> {
    /// Returns true if the value is marked as a static one.
    pub fn is_static(&self) -> bool {
        self.is_static
    }

    /// The bytes of the components that are left.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns true if no component is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next component.
    ///
    /// # Errors
    /// `Marshal`: damaged.
    pub fn read(&mut self) -> Result<Part<'a>, TypeError> {
        let index = self.index;
        let (component, value) = self.read_value()?;
        Ok(Part { component, value, end: self.read_end(index)? })
    }

    fn take(&mut self, count: usize, what: impl FnOnce() -> String) -> Result<&'a [u8], TypeError> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or_else(|| TypeError::Marshal(what()))?;
        self.rest = rest;
        Ok(taken)
    }

    fn take_u16(&mut self, what: impl FnOnce() -> String) -> Result<u16, TypeError> {
        Ok(self.take(2, what)?.iter().fold(0u16, |n, b| n << 8 | u16::from(*b)))
    }

    /// The name of the next component's type as text has it; `None`: it has none.
    fn type_name(&self) -> Option<String> {
        let CustomKind::DynamicComposite(_) = self.kind else {
            return None;
        };
        match self.rest {
            [high, alias, ..] if high & 0x80 != 0 => Some(char::from(*alias).to_string()),
            [high, low, name @ ..] => {
                let name = name.get(..usize::from(u16::from_be_bytes([*high, *low])))?;
                Some(String::from_utf8_lossy(name).into_owned())
            }
            _ => None,
        }
    }

    fn read_type(&mut self) -> Result<std::borrow::Cow<'a, Component>, TypeError> {
        use std::borrow::Cow;
        let index = self.index;
        let aliases = match self.kind {
            CustomKind::Composite(components) => {
                return components
                    .get(index)
                    .map(Cow::Borrowed)
                    .ok_or_else(|| TypeError::marshal("Too many bytes for comparator"));
            }
            CustomKind::DynamicComposite(aliases) => aliases,
            CustomKind::LexicalUuid | CustomKind::Unknown => {
                return Err(TypeError::marshal("Too many bytes for comparator"));
            }
        };
        let header = self.take_u16(|| {
            format!("Not enough bytes to header of the comparator part of component {index}")
        })?;
        let found = if header & 0x8000 == 0 {
            let name = self.take(usize::from(header), || {
                format!("Not enough bytes to read comparator name of component {index}")
            })?;
            std::str::from_utf8(name).ok().and_then(inline_component).map(Cow::Owned)
        } else {
            let [_, alias] = header.to_be_bytes();
            aliases.iter().find(|(a, _)| *a == alias).map(|(_, c)| Cow::Borrowed(c))
        };
        found.ok_or_else(|| {
            TypeError::Marshal(format!("Cannot find comparator for component {index}"))
        })
    }

    fn read_value(&mut self) -> Result<(std::borrow::Cow<'a, Component>, &'a [u8]), TypeError> {
        let index = self.index;
        let component = self.read_type()?;
        let length =
            self.take_u16(|| format!("Not enough bytes to read value size of component {index}"))?;
        let value = self.take(usize::from(length), || {
            format!("Not enough bytes to read value of component {index}")
        })?;
        Ok((component, value))
    }

    fn read_end(&mut self, index: usize) -> Result<i8, TypeError> {
        let end = self.take(1, || {
            format!("Not enough bytes to read the end-of-component byte of component{index}")
        })?;
        self.index = self.index.saturating_add(1);
        Ok(end.first().copied().unwrap_or(0).cast_signed())
    }

    /// Component by component. The end of a value is before everything; bytes that are no component
    /// are before all components, by their order, and end the value.
    fn compare(&mut self, other: &mut Parts<'_>, depth: u32) -> Ordering {
        loop {
            if self.rest.is_empty() || other.rest.is_empty() {
                return (!self.rest.is_empty()).cmp(&!other.rest.is_empty());
            }
            let (left, right) = (self.rest, other.rest);
            let (a, b) = match (self.read(), other.read()) {
                (Ok(a), Ok(b)) => (a, b),
                (Err(_), Err(_)) => return left.cmp(right),
                (a, b) => return a.is_ok().cmp(&b.is_ok()),
            };
            let types = match self.kind {
                CustomKind::DynamicComposite(_) => a.component.compare_type(&b.component),
                _ => Ordering::Equal,
            };
            let order = types
                .then_with(|| a.component.compare(a.value, b.value, depth))
                .then(a.end.cmp(&b.end));
            if order.is_ne() {
                return order;
            }
        }
    }
}

/// Java's `UUID.compareTo`: both halves as signed numbers.
fn compare_lexical(a: &[u8], b: &[u8]) -> Ordering {
    let halves = |bytes: &[u8]| {
        let bits = u128::from_be_bytes(bytes.try_into().ok()?);
        // Flipping the sign bits makes the signed order the unsigned one.
        Some(bits ^ (1 << 127 | 1 << 63))
    };
    match (halves(a), halves(b)) {
        (Some(x), Some(y)) => x.cmp(&y),
        // Empty is the least byte string.
        (None, None) => a.cmp(b),
        (x, y) => x.is_some().cmp(&y.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Comparator;

    fn ty(name: &str) -> CqlType {
        parse_marshal(name).unwrap_or_else(|e| panic!("{name}: {e}")).0
    }

    fn hex(text: &str) -> Vec<u8> {
        crate::marshal::parse_hex(text).expect("hex")
    }

    #[test]
    fn texts_become_the_bytes_that_cassandra_writes() {
        let check = |name: &str, text: &str, bytes: &str| {
            let ty = ty(name);
            assert_eq!(ty.from_string(text), Ok(hex(bytes)), "{name} {text}");
            assert_eq!(ty.validate(&hex(bytes)), Ok(()), "{name} {text}");
        };
        let composite = "CompositeType(UTF8Type,Int32Type)";
        check(composite, "a:1", "0001610000040000000100");
        check(composite, "a\\:b:1", "0003613a620000040000000100");
        check(composite, "a", "00016100");
        check(composite, "a:1!", "0001610000040000000100");
        check(composite, "a:!", "00016101");
        check(composite, "a:_", "000161ff");
        check(composite, ":", "000000000000");
        check(composite, "", "");
        let dynamic = "DynamicCompositeType(s=>UTF8Type,i=>Int32Type)";
        check(dynamic, "s@a:i@1", "807300016100806900040000000100");
        check(dynamic, "LongType@5!", "00084c6f6e67547970650008000000000000000500");
        check(dynamic, "s@a\\:b", "80730003613a6200");
        check(dynamic, "s@", "8073000000");
        check(
            "LexicalUUIDType",
            "02345678-1234-4234-1234-123456789012",
            "02345678123442341234123456789012",
        );
        check("LexicalUUIDType", "1-2-3-4-5", "00000001000200030004000000000005");
    }

    #[test]
    fn texts_that_are_no_value_are_refused() {
        let check = |name: &str, text: &str, expect: &str| {
            assert_eq!(ty(name).from_string(text), Err(TypeError::marshal(expect)), "{text}");
        };
        let composite = "CompositeType(UTF8Type,Int32Type)";
        check(composite, "a:x", "Unable to make int from 'x'");
        check(composite, "!", "'!' must follow a component in '!'");
        check(
            composite,
            "a:1:2",
            "too many components in 'a:1:2': type 'org.apache.cassandra.db.marshal.CompositeType(\
             org.apache.cassandra.db.marshal.UTF8Type,org.apache.cassandra.db.marshal.Int32Type)' \
             has 2",
        );
        check(
            composite,
            &"a".repeat(65_536),
            "component 0 of 65536 bytes is longer than maximum of 65535",
        );
        let dynamic = "DynamicCompositeType(s=>UTF8Type)";
        check(dynamic, "s@a@b", "Invalid component representation: s@a@b");
        check(dynamic, "@", "Invalid component representation: @");
        check(
            dynamic,
            "x@a",
            "Unable to find abstract-type class 'org.apache.cassandra.db.marshal.x'",
        );
        check(
            dynamic,
            "DynamicCompositeType()@a",
            "Unable to find abstract-type class 'org.apache.cassandra.db.marshal.DynamicCompositeType()'",
        );
        check("LexicalUUIDType", "xyz", "unable to make UUID from 'xyz'");
    }

    #[test]
    fn bytes_that_are_no_value_are_refused_with_cassandras_texts() {
        let check = |name: &str, bytes: &str, expect: &str| {
            let found = ty(name).validate(&hex(bytes)).map_err(|e| e.to_string());
            assert_eq!(
                found,
                if expect.is_empty() { Ok(()) } else { Err(expect.to_owned()) },
                "{bytes}"
            );
        };
        let c = "CompositeType(Int32Type,UTF8Type)";
        check(c, "00", "Not enough bytes to read value size of component 0");
        check(c, "0001", "Not enough bytes to read value of component 0");
        check(c, "000161", "Expected 4 or 0 byte int (1)");
        check(c, "00040000000100", "");
        check(c, "000400000001ff", "");
        check(
            c,
            "0004000000010100",
            "Invalid bytes remaining after an end-of-component at component0",
        );
        check(c, "00040000000100000161000000", "Too many bytes for comparator");
        check(c, "000000", "");
        check(c, "ffff00040000000100", "");
        check(c, "0004000000010000", "Not enough bytes to read value size of component 1");
        check(
            c,
            "00040000000100000100",
            "Not enough bytes to read the end-of-component byte of component1",
        );
        let d = "DynamicCompositeType(s=>UTF8Type,i=>Int32Type)";
        check(d, "80", "Not enough bytes to header of the comparator part of component 0");
        check(d, "8073", "Not enough bytes to read value size of component 0");
        check(d, "8078000161", "Cannot find comparator for component 0");
        check(d, "0008", "Not enough bytes to read comparator name of component 0");
        check(d, "0008555446385479706500016100", "");
        check(d, "0003585858000000", "Cannot find comparator for component 0");
        check(d, "80690001ff00", "Expected 4 or 0 byte int (1)");
        check(d, "ff7300016100", "");
        check("LexicalUUIDType", "12", "UUID should be 16 or 0 bytes (1)");
        check("LexicalUUIDType", "", "");
    }

    fn rising(name: &str, values: &[&str]) {
        let ty = ty(name);
        let comparator = Comparator::for_type(&ty);
        let values: Vec<Vec<u8>> = values.iter().map(|v| hex(v)).collect();
        for (i, a) in values.iter().enumerate() {
            for (j, b) in values.iter().enumerate() {
                assert_eq!(comparator.compare(a, b), i.cmp(&j), "{a:02x?} {b:02x?}");
            }
        }
    }

    #[test]
    fn values_order_as_cassandra_shows_them() {
        rising(
            "LexicalUUIDType",
            &[
                "",
                "f2345678123412341234123456789012",
                "0234567812344234f234123456789012",
                "02345678123442341234123456789012",
                "12345678123412341234123456789013",
            ],
        );
        rising(
            "CompositeType(Int32Type,UTF8Type)",
            &[
                "",
                "ffff00040000000500",
                "0004ffffffff0000017a00",
                "000400000000ff",
                "00040000000000",
                "000400000000000002616200",
                "0004000000000000016200",
                "000400000000000002626200",
                "00040000000001",
                "0004000000010000017a00",
            ],
        );
        rising(
            "DynamicCompositeType(s=>UTF8Type,i=>Int32Type,r=>ReversedType(Int32Type),l=>LongType)",
            &[
                "",
                "000942797465735479706500010400",
                "80690004fffffffb00",
                "0009496e7433325479706500040000000400",
                "806900040000000500",
                "806c0008fffffffffffffffb00",
                "00084c6f6e67547970650008000000000000000300",
                "806c0008000000000000000500",
                "807200040000000500",
                "80720004fffffffb00",
                "807300016100",
                "80730001610080690004ffffffff00",
                "807300016100806900040000000100",
                "807300016101",
                "80730002616100",
                "807300016200",
            ],
        );
    }

    #[test]
    fn plain_texts_read_back() {
        let check = |name: &str, text: &str| {
            let ty = ty(name);
            let bytes = ty.from_string(text).expect("a value");
            assert_eq!(ty.format_plain(&bytes), text, "{name}");
        };
        check("CompositeType(UTF8Type,Int32Type)", "a\\:b:1");
        check("CompositeType(UTF8Type,Int32Type)", "a:!");
        check("CompositeType(UTF8Type,Int32Type)", "a!!:_");
        check("DynamicCompositeType(s=>UTF8Type)", "s@a:Int32Type@5");
        check("LexicalUUIDType", "02345678-1234-4234-1234-123456789012");
        assert_eq!(ty("CompositeType(Int32Type)").format_plain(&[0]), "00");
        let lexical = ty("LexicalUUIDType");
        assert_eq!(lexical.to_json(&[7; 16]), "\"07070707-0707-0707-0707-070707070707\"");
        assert_eq!(lexical.format_cql_literal(&[7; 16]), "07070707-0707-0707-0707-070707070707");
    }

    #[test]
    fn a_composite_may_grow_at_its_end() {
        let check = |new: &str, old: &str, expect: bool| {
            assert_eq!(ty(new).is_compatible_with(&ty(old)), expect, "{new} {old}");
        };
        check("CompositeType(Int32Type,UTF8Type)", "CompositeType(Int32Type)", true);
        check("CompositeType(UTF8Type)", "CompositeType(AsciiType)", true);
        check("CompositeType(Int32Type)", "CompositeType(Int32Type,UTF8Type)", false);
        check("CompositeType(ReversedType(Int32Type))", "CompositeType(Int32Type)", false);
        check(
            "DynamicCompositeType(a=>Int32Type,b=>UTF8Type)",
            "DynamicCompositeType(b=>UTF8Type)",
            true,
        );
        check("DynamicCompositeType(b=>UTF8Type)", "DynamicCompositeType(b=>AsciiType)", false);
        check("CompositeType(Int32Type)", "DynamicCompositeType(b=>Int32Type)", false);
    }
}
