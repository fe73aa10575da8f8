//! Marshal class names: how Cassandra spells types in `Statistics.db`, in custom types of the native
//! protocol and in old schema tables.
//!
//! Owns: the parser of such names and the printer. Source: `db.marshal.TypeParser` and the
//! `toString` of each type.

use std::sync::Arc;

use crate::{CqlType, CustomType, TypeError, UdtType};

pub(crate) const PREFIX: &str = "org.apache.cassandra.db.marshal.";

/// Deepest nesting of a marshal name. Cassandra has no limit of its own but would overflow its
/// stack; real schemas stay below ten.
const DEPTH_MAX: u32 = 64;

/// Parses a marshal class name, with or without the `org.apache.cassandra.db.marshal.` prefix.
/// The flag is true if the name was wrapped in `ReversedType(...)` (descending clustering).
///
/// An empty name is `blob`, as in Cassandra. Classes that CQL has no name for become
/// [`CqlType::Custom`] with the full name.
///
/// # Errors
/// `Syntax` for text that is not a class name with parameters; `Configuration` for wrong parameters
/// or a reversed type inside another type.
pub fn parse_marshal(name: &str) -> Result<(CqlType, bool), TypeError> {
    let mut parser = Parser { text: name, at: 0 };
    parser.skip_blank();
    let start = parser.at;
    let parsed = parser.parse(0)?;
    if parser.at == start {
        // No class name at all: BytesType, as TypeParser.parse.
        return Ok((CqlType::Blob, false));
    }
    parser.skip_blank();
    if parser.at < name.len() {
        return Err(parser.error("unexpected text after the type"));
    }
    Ok(parsed)
}

/// Components of a composite marshal name with their reversed flags: those of `CompositeType(a,b)`,
/// or the type itself for any other name. `Statistics.db` names a partition key of several columns
/// this way.
///
/// # Errors
/// As [`parse_marshal`].
pub fn parse_marshal_components(name: &str) -> Result<Vec<(CqlType, bool)>, TypeError> {
    let trimmed = name.trim();
    let bare = trimmed.strip_prefix(PREFIX).unwrap_or(trimmed);
    let Some(rest) = bare.strip_prefix("CompositeType") else {
        return Ok(vec![parse_marshal(name)?]);
    };
    let mut parser = Parser { text: rest, at: 0 };
    let components = parser.parameters(|p| p.parse(0))?;
    // A key of several columns has two components at least: this is one column of that class.
    if components.len() < 2 {
        return Ok(vec![parse_marshal(name)?]);
    }
    Ok(components)
}

/// Name of `CompositeType` over the component types, for keys of several columns.
pub fn composite_marshal_name<'a>(components: impl IntoIterator<Item = &'a CqlType>) -> String {
    let mut out = format!("{PREFIX}CompositeType(");
    for (i, component) in components.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        component.write_marshal(&mut out, false);
    }
    out.push(')');
    out
}

impl CqlType {
    /// The type's marshal name exactly as Cassandra prints it (`AbstractType.toString`): frozen
    /// collections and user types inside `FrozenType(...)`, which is left out below a frozen type
    /// and in tuples.
    pub fn to_marshal_name(&self) -> String {
        let mut out = String::new();
        self.write_marshal(&mut out, false);
        out
    }

    /// The marshal name of the type in descending order: `ReversedType(...)`.
    pub fn to_marshal_name_reversed(&self) -> String {
        let mut out = format!("{PREFIX}ReversedType(");
        self.write_marshal(&mut out, false);
        out.push(')');
        out
    }

    /// Last part of the marshal class of a simple type.
    fn simple_class(&self) -> Option<&'static str> {
        Some(match self {
            CqlType::Ascii => "AsciiType",
            CqlType::Bigint => "LongType",
            CqlType::Blob => "BytesType",
            CqlType::Boolean => "BooleanType",
            CqlType::Counter => "CounterColumnType",
            CqlType::Date => "SimpleDateType",
            CqlType::Decimal => "DecimalType",
            CqlType::Double => "DoubleType",
            CqlType::Duration => "DurationType",
            CqlType::Empty => "EmptyType",
            CqlType::Float => "FloatType",
            CqlType::Inet => "InetAddressType",
            CqlType::Int => "Int32Type",
            CqlType::Smallint => "ShortType",
            CqlType::Text => "UTF8Type",
            CqlType::Time => "TimeType",
            CqlType::Timestamp => "TimestampType",
            CqlType::Timeuuid => "TimeUUIDType",
            CqlType::Tinyint => "ByteType",
            CqlType::Uuid => "UUIDType",
            CqlType::Varint => "IntegerType",
            CqlType::List { .. }
            | CqlType::Set { .. }
            | CqlType::Map { .. }
            | CqlType::Tuple(_)
            | CqlType::Udt(_)
            | CqlType::Vector { .. }
            | CqlType::Custom(_) => return None,
        })
    }

    fn write_marshal(&self, out: &mut String, ignore_freezing: bool) {
        match self {
            CqlType::List { element, frozen } => {
                write_freezable(out, *frozen, ignore_freezing, |out, ignore| {
                    write_parameters(out, "ListType", [&**element], ignore);
                });
            }
            CqlType::Set { element, frozen } => {
                write_freezable(out, *frozen, ignore_freezing, |out, ignore| {
                    write_parameters(out, "SetType", [&**element], ignore);
                });
            }
            CqlType::Map { key, value, frozen } => {
                write_freezable(out, *frozen, ignore_freezing, |out, ignore| {
                    write_parameters(out, "MapType", [&**key, &**value], ignore);
                });
            }
            CqlType::Tuple(fields) => write_parameters(out, "TupleType", fields.iter(), true),
            CqlType::Udt(udt) => {
                write_freezable(out, udt.frozen, ignore_freezing, |out, ignore| {
                    out.push_str(PREFIX);
                    out.push_str("UserType(");
                    out.push_str(&udt.keyspace);
                    out.push(',');
                    push_hex(out, udt.name.as_bytes());
                    for (name, ty) in &udt.fields {
                        out.push(',');
                        push_hex(out, name.as_bytes());
                        out.push(':');
                        ty.write_marshal(out, ignore);
                    }
                    out.push(')');
                });
            }
            CqlType::Vector { element, dimension } => {
                out.push_str(PREFIX);
                out.push_str("VectorType(");
                element.write_marshal(out, ignore_freezing);
                out.push_str(" , ");
                out.push_str(&dimension.to_string());
                out.push(')');
            }
            CqlType::Custom(custom) => out.push_str(custom.name()),
            simple => {
                if let Some(class) = simple.simple_class() {
                    out.push_str(PREFIX);
                    out.push_str(class);
                }
            }
        }
    }
}

fn write_freezable(
    out: &mut String,
    frozen: bool,
    ignore_freezing: bool,
    inner: impl FnOnce(&mut String, bool),
) {
    let wrap = frozen && !ignore_freezing;
    if wrap {
        out.push_str(PREFIX);
        out.push_str("FrozenType(");
    }
    inner(out, ignore_freezing || frozen);
    if wrap {
        out.push(')');
    }
}

fn write_parameters<'a>(
    out: &mut String,
    class: &str,
    parameters: impl IntoIterator<Item = &'a CqlType>,
    ignore_freezing: bool,
) {
    out.push_str(PREFIX);
    out.push_str(class);
    out.push('(');
    for (i, parameter) in parameters.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        parameter.write_marshal(out, ignore_freezing);
    }
    out.push(')');
}

pub(crate) fn push_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from(DIGITS.get(usize::from(digit)).copied().unwrap_or(b'0')));
        }
    }
}

/// Value of each hex digit; `NO_DIGIT` for other bytes.
const HEX_VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < 10 {
        values[b'0' as usize + digit] = digit as u8;
        digit += 1;
    }
    while digit < 16 {
        values[b'a' as usize + digit - 10] = digit as u8;
        values[b'A' as usize + digit - 10] = digit as u8;
        digit += 1;
    }
    values
};
const NO_DIGIT: u8 = 0xff;

/// Bytes of a hex string with an even number of digits of either case.
///
/// A literal may have megabytes, and nothing else runs on the shard meanwhile, so digits are looked up and the
/// check for other bytes is one for the whole text.
pub(crate) fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    let digit = |byte: u8| HEX_VALUES.get(usize::from(byte)).copied().unwrap_or(NO_DIGIT);
    let mut seen = 0;
    let decode = |&[high, low]: &[u8; 2]| {
        let (high, low) = (digit(high), digit(low));
        seen |= high | low;
        high << 4 | low & 0x0f
    };
    let bytes = pairs.iter().map(decode).collect();
    (seen & 0xf0 == 0).then_some(bytes)
}

struct Parser<'a> {
    text: &'a str,
    /// Byte offset, always on a character boundary: only ASCII is stepped over.
    at: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, what: &str) -> TypeError {
        TypeError::Syntax(format!(
            "Syntax error parsing '{}' at char {}: {what}",
            self.text, self.at
        ))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn step(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    fn skip_blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n')) {
            self.step();
        }
    }

    /// Blanks and at most one comma. False at the end of the text.
    fn skip_blank_and_comma(&mut self) -> bool {
        let mut comma = false;
        loop {
            match self.peek() {
                None => return false,
                Some(b',') if !comma => comma = true,
                Some(b' ' | b'\t' | b'\n') => {}
                Some(_) => return true,
            }
            self.step();
        }
    }

    fn identifier(&mut self) -> &'a str {
        let start = self.at;
        while matches!(
            self.peek(),
            Some(b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'+' | b'.' | b'_' | b'&')
        ) {
            self.step();
        }
        self.text.get(start..self.at).unwrap_or("")
    }

    fn expect(&mut self, byte: u8) -> Result<(), TypeError> {
        if self.peek() == Some(byte) {
            self.step();
            Ok(())
        } else {
            Err(self.error(&format!("expecting '{}' token", char::from(byte))))
        }
    }

    /// `( item, item, … )`; nothing at all is no items.
    fn parameters<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, TypeError>,
    ) -> Result<Vec<T>, TypeError> {
        let mut items = Vec::new();
        if self.peek().is_none() {
            return Ok(items);
        }
        self.expect(b'(')?;
        while self.skip_blank_and_comma() {
            if self.peek() == Some(b')') {
                self.step();
                return Ok(items);
            }
            let before = self.at;
            items.push(item(self)?);
            if self.at == before {
                return Err(self.error("unexpected character"));
            }
        }
        Err(self.error("unexpected end of string"))
    }

    fn parse(&mut self, depth: u32) -> Result<(CqlType, bool), TypeError> {
        if depth > DEPTH_MAX {
            return Err(self.error("types are nested too deep"));
        }
        let depth = depth.saturating_add(1);
        self.skip_blank();
        let name = self.identifier();
        self.skip_blank();
        let has_parameters = self.peek() == Some(b'(');
        let class = match name.strip_prefix(PREFIX) {
            Some(class) => class,
            None if !name.contains('.') => name,
            None => "",
        };
        if let Some(simple) = simple_type(class) {
            let reversed = if has_parameters { self.reversed_parameter()? } else { false };
            return Ok((simple, reversed));
        }
        let ty = match class {
            "" if name.is_empty() => CqlType::Blob,
            "ReversedType" => {
                let (inner, reversed) = self.one_parameter(depth, "ReversedType")?;
                return Ok((inner, !reversed));
            }
            "FrozenType" => {
                let (inner, reversed) = self.one_parameter(depth, "FrozenType")?;
                return Ok((inner.freeze(), reversed));
            }
            "ListType" => CqlType::list(self.one_type(depth, "ListType")?.freeze(), false),
            "SetType" => CqlType::set(self.one_type(depth, "SetType")?.freeze(), false),
            "MapType" => {
                let mut types = self.types(depth)?.into_iter();
                match (types.next(), types.next(), types.next()) {
                    (Some(key), Some(value), None) => {
                        CqlType::map(key.freeze(), value.freeze(), false)
                    }
                    _ => {
                        return Err(TypeError::Configuration(
                            "MapType takes exactly 2 type parameters".to_owned(),
                        ));
                    }
                }
            }
            "TupleType" => CqlType::tuple(self.types(depth)?),
            "UserType" => self.user_type(depth)?,
            "VectorType" => self.vector(depth)?,
            "LexicalUUIDType" => {
                // Cassandra ignores parameters here.
                self.custom_text(name, has_parameters)?;
                CqlType::custom(CustomType::lexical_uuid())
            }
            "CompositeType" => self.composite(depth)?,
            "DynamicCompositeType" => self.dynamic_composite(depth)?,
            // Any other class is kept by its name.
            _ => self.custom(name, has_parameters)?,
        };
        Ok((ty, false))
    }

    fn types(&mut self, depth: u32) -> Result<Vec<CqlType>, TypeError> {
        self.parameters(|p| p.inner(depth))
    }

    /// A type inside another one, where Cassandra never writes a reversed type.
    fn inner(&mut self, depth: u32) -> Result<CqlType, TypeError> {
        match self.parse(depth)? {
            (ty, false) => Ok(ty),
            (_, true) => Err(TypeError::Configuration(format!(
                "reversed type inside another type in '{}'",
                self.text
            ))),
        }
    }

    fn one_parameter(&mut self, depth: u32, class: &str) -> Result<(CqlType, bool), TypeError> {
        let mut types = self.parameters(|p| p.parse(depth))?;
        match (types.pop(), types.is_empty()) {
            (Some(ty), true) => Ok(ty),
            (last, _) => Err(TypeError::Configuration(format!(
                "{class} takes exactly one argument, {} given",
                types.len().saturating_add(usize::from(last.is_some()))
            ))),
        }
    }

    fn one_type(&mut self, depth: u32, class: &str) -> Result<CqlType, TypeError> {
        let mut types = self.types(depth)?;
        match (types.pop(), types.is_empty()) {
            (Some(ty), true) => Ok(ty),
            _ => Err(TypeError::Configuration(format!("{class} takes exactly 1 type parameter"))),
        }
    }

    /// `(reversed = true)` after a simple class, from the time before `ReversedType`.
    fn reversed_parameter(&mut self) -> Result<bool, TypeError> {
        let parameters = self.parameters(|p| {
            let key = p.identifier();
            p.skip_blank();
            let mut value = "";
            if p.peek() == Some(b'=') {
                p.step();
                p.skip_blank();
                value = p.identifier();
            }
            Ok((key, value))
        })?;
        Ok(parameters.iter().any(|(k, v)| *k == "reversed" && (v.is_empty() || *v == "true")))
    }

    fn vector(&mut self, depth: u32) -> Result<CqlType, TypeError> {
        self.expect(b'(')?;
        let element = self.inner(depth)?.freeze();
        if !self.skip_blank_and_comma() {
            return Err(self.error("unexpected end of string"));
        }
        let digits = self.identifier();
        let dimension: i32 = digits.parse().map_err(|_| self.error("expecting a dimension"))?;
        let dimension = match u32::try_from(dimension) {
            Ok(dimension) if dimension > 0 => dimension,
            _ => {
                return Err(TypeError::Configuration(format!(
                    "vectors may only have positive dimensions; given {dimension}"
                )));
            }
        };
        self.skip_blank();
        self.expect(b')')?;
        Ok(CqlType::vector(element, dimension))
    }

    fn user_type(&mut self, depth: u32) -> Result<CqlType, TypeError> {
        self.expect(b'(')?;
        self.skip_blank_and_comma();
        let keyspace: Arc<str> = self.identifier().into();
        self.skip_blank_and_comma();
        let name: Arc<str> = self.hex_name()?.into();
        let mut fields = Vec::new();
        while self.skip_blank_and_comma() {
            if self.peek() == Some(b')') {
                self.step();
                let udt = UdtType { keyspace, name, fields, frozen: false };
                return Ok(CqlType::Udt(Arc::new(udt)));
            }
            let field = self.hex_name()?;
            self.skip_blank();
            self.expect(b':')?;
            fields.push((field, self.inner(depth)?));
        }
        Err(self.error("unexpected end of string"))
    }

    fn hex_name(&mut self) -> Result<String, TypeError> {
        let hex = self.identifier();
        parse_hex(hex)
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or_else(|| self.error("expecting a name in hex"))
    }

    fn composite(&mut self, depth: u32) -> Result<CqlType, TypeError> {
        let types = self.parameters(|p| p.parse(depth))?;
        CustomType::composite(types).map(CqlType::custom).ok_or_else(|| {
            TypeError::Configuration("CompositeType takes at least 1 type parameter".to_owned())
        })
    }

    /// `(a=>type, b=>type)`, where an alias is one character of a class name.
    fn dynamic_composite(&mut self, depth: u32) -> Result<CqlType, TypeError> {
        let types = self.parameters(|p| {
            let alias = p.identifier();
            let [alias] = alias.as_bytes() else {
                return Err(p.error("an alias must be a single character"));
            };
            p.skip_blank();
            p.expect(b'=')?;
            p.expect(b'>')?;
            let (ty, reversed) = p.parse(depth)?;
            Ok((*alias, ty, reversed))
        })?;
        Ok(CqlType::custom(CustomType::dynamic_composite(types)))
    }

    fn custom(&mut self, name: &str, has_parameters: bool) -> Result<CqlType, TypeError> {
        let text = self.custom_text(name, has_parameters)?;
        Ok(CqlType::custom(CustomType::unknown(&text)))
    }

    /// The class name and its parameters up to the matching parenthesis, as text.
    fn custom_text(&mut self, name: &str, has_parameters: bool) -> Result<String, TypeError> {
        let mut text = if name.contains('.') { name.to_owned() } else { format!("{PREFIX}{name}") };
        if has_parameters {
            let start = self.at;
            let mut open = 0u32;
            loop {
                match self.peek() {
                    None => return Err(self.error("unexpected end of string")),
                    Some(b'(') => open = open.saturating_add(1),
                    Some(b')') => open = open.saturating_sub(1),
                    Some(_) => {}
                }
                self.step();
                if open == 0 {
                    break;
                }
            }
            text.push_str(self.text.get(start..self.at).unwrap_or(""));
        }
        Ok(text)
    }
}

fn simple_type(class: &str) -> Option<CqlType> {
    Some(match class {
        "AsciiType" => CqlType::Ascii,
        "LongType" => CqlType::Bigint,
        "BytesType" => CqlType::Blob,
        "BooleanType" => CqlType::Boolean,
        "CounterColumnType" => CqlType::Counter,
        "SimpleDateType" => CqlType::Date,
        "DecimalType" => CqlType::Decimal,
        "DoubleType" => CqlType::Double,
        "DurationType" => CqlType::Duration,
        "EmptyType" => CqlType::Empty,
        "FloatType" => CqlType::Float,
        "InetAddressType" => CqlType::Inet,
        "Int32Type" => CqlType::Int,
        "ShortType" => CqlType::Smallint,
        "UTF8Type" => CqlType::Text,
        "TimeType" => CqlType::Time,
        "TimestampType" => CqlType::Timestamp,
        "TimeUUIDType" => CqlType::Timeuuid,
        "ByteType" => CqlType::Tinyint,
        "UUIDType" => CqlType::Uuid,
        "IntegerType" => CqlType::Varint,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: &str = PREFIX;

    #[test]
    fn hex_digits_of_either_case_are_read_and_nothing_else() {
        for byte in 0..=127_u8 {
            let digit = char::from(byte);
            let value = digit.to_digit(16).and_then(|d| u8::try_from(d).ok());
            for (text, expected) in [
                (format!("00{digit}0"), value.map(|d| vec![0, d << 4])),
                (format!("0{digit}ff"), value.map(|d| vec![d, 0xff])),
            ] {
                assert_eq!(parse_hex(&text), expected, "{text:?}");
            }
        }
        assert_eq!(parse_hex("é"), None);
        assert_eq!(parse_hex("abc"), None);
        assert_eq!(parse_hex(""), Some(Vec::new()));
    }

    #[test]
    fn names_are_printed_as_cassandra_does() {
        let check = |ty: CqlType, expect: &str| {
            assert_eq!(ty.to_marshal_name(), expect.replace('~', P));
            let (parsed, reversed) = parse_marshal(&ty.to_marshal_name()).expect("own name parses");
            assert_eq!((parsed, reversed), (ty, false));
        };
        check(CqlType::Int, "~Int32Type");
        check(CqlType::list(CqlType::Text, false), "~ListType(~UTF8Type)");
        check(CqlType::list(CqlType::Text, true), "~FrozenType(~ListType(~UTF8Type))");
        check(
            CqlType::map(CqlType::Text, CqlType::set(CqlType::Int, true), false),
            "~MapType(~UTF8Type,~FrozenType(~SetType(~Int32Type)))",
        );
        check(
            CqlType::map(CqlType::Text, CqlType::set(CqlType::Int, true), true),
            "~FrozenType(~MapType(~UTF8Type,~SetType(~Int32Type)))",
        );
        check(
            CqlType::tuple([CqlType::Int, CqlType::list(CqlType::Int, true)]),
            "~TupleType(~Int32Type,~ListType(~Int32Type))",
        );
        check(CqlType::vector(CqlType::Float, 3), "~VectorType(~FloatType , 3)");
        check(
            CqlType::Udt(Arc::new(UdtType {
                keyspace: "ks".into(),
                name: "Ad".into(),
                fields: vec![
                    ("a".to_owned(), CqlType::Int),
                    ("b".to_owned(), CqlType::list(CqlType::Int, true)),
                ],
                frozen: false,
            })),
            "~UserType(ks,4164,61:~Int32Type,62:~FrozenType(~ListType(~Int32Type)))",
        );
        check(
            CqlType::custom(
                CustomType::composite(vec![(CqlType::Int, false), (CqlType::Text, true)])
                    .expect("two components"),
            ),
            "~CompositeType(~Int32Type,~ReversedType(~UTF8Type))",
        );
        check(
            CqlType::custom(CustomType::dynamic_composite(vec![
                (b'i', CqlType::Int, false),
                (b'b', CqlType::Blob, false),
                (b't', CqlType::Timeuuid, true),
            ])),
            "~DynamicCompositeType(b=>~BytesType,t=>~ReversedType(~TimeUUIDType),i=>~Int32Type)",
        );
        check(CqlType::custom(CustomType::dynamic_composite(vec![])), "~DynamicCompositeType()");
        check(CqlType::custom(CustomType::lexical_uuid()), "~LexicalUUIDType");
        check(CqlType::custom(CustomType::unknown("org.example.X(a=1)")), "org.example.X(a=1)");
    }

    #[test]
    fn reversed_types_are_recognised_in_both_spellings() {
        let check = |name: &str, expect: (CqlType, bool)| {
            assert_eq!(parse_marshal(&name.replace('~', P)), Ok(expect));
        };
        check("~ReversedType(~Int32Type)", (CqlType::Int, true));
        check("ReversedType(Int32Type)", (CqlType::Int, true));
        check("Int32Type(reversed=true)", (CqlType::Int, true));
        check("Int32Type(reversed = false)", (CqlType::Int, false));
        check("", (CqlType::Blob, false));
        assert_eq!(
            CqlType::Int.to_marshal_name_reversed(),
            format!("{P}ReversedType({P}Int32Type)")
        );
    }

    #[test]
    fn bad_names_are_refused() {
        for name in [
            "ListType(Int32Type",
            "ListType()",
            "MapType(Int32Type)",
            "VectorType(Int32Type , 0)",
            "VectorType(Int32Type , x)",
            "ListType(ReversedType(Int32Type))",
            "UserType(ks,6)",
            "CompositeType",
            "CompositeType()",
            "CompositeType(Int32Type",
            "DynamicCompositeType(ss=>UTF8Type)",
            "DynamicCompositeType(s=UTF8Type)",
            "DynamicCompositeType(UTF8Type)",
            "Int32Type)",
            &"ListType(".repeat(100),
        ] {
            assert!(parse_marshal(name).is_err(), "{name}");
        }
    }

    #[test]
    fn composite_keys_split_into_components() {
        assert_eq!(
            parse_marshal_components(&format!(
                "{P}CompositeType({P}Int32Type,{P}ReversedType({P}UTF8Type))"
            )),
            Ok(vec![(CqlType::Int, false), (CqlType::Text, true)])
        );
        assert_eq!(parse_marshal_components("Int32Type"), Ok(vec![(CqlType::Int, false)]));
        let one = CustomType::composite(vec![(CqlType::Int, false)]).map(CqlType::custom);
        assert_eq!(
            parse_marshal_components("CompositeType(Int32Type)"),
            Ok(vec![(one.expect("one component"), false)])
        );
        assert_eq!(
            composite_marshal_name([&CqlType::Int, &CqlType::Text]),
            format!("{P}CompositeType({P}Int32Type,{P}UTF8Type)")
        );
    }
}
