//! Tokens and keywords.
//!
//! Owns the keyword list and which keywords may stand for a name. Source: Cassandra 5.0,
//! `Lexer.g`, `Parser.g` (unreserved keywords) and `reserved_keywords.txt`.

use std::borrow::Cow;

use crate::ast::NativeType;

/// Use of a keyword as a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Never a name.
    Reserved,
    /// A name anywhere.
    Basic,
    /// A name except of a function or user type: `ttl`, `count`, `json` and the like.
    Special,
    /// A built-in type; a name except of a user type.
    Native(NativeType),
}

macro_rules! tokens {
    (
        symbols { $($symbol:ident $shown:literal),* $(,)? }
        keywords { $($class:tt { $($keyword:ident $word:literal $name:literal),* $(,)? })* }
        natives { $($native:ident $native_word:literal $native_name:literal),* $(,)? }
    ) => {
        /// Kind of a token.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Tok {
            $($symbol,)*
            $($($keyword,)*)*
            $($native,)*
        }

        impl Tok {
            /// The name that ANTLR gives it in `expecting …`.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Tok::$symbol => $shown,)*
                    $($(Tok::$keyword => $name,)*)*
                    $(Tok::$native => $native_name,)*
                }
            }

            /// The keyword's class; `None` for other tokens.
            pub(crate) fn class(self) -> Option<Class> {
                match self {
                    $(Tok::$symbol => None,)*
                    $($(Tok::$keyword => Some(Class::$class),)*)*
                    $(Tok::$native => Some(Class::Native(NativeType::$native)),)*
                }
            }
        }

        /// The keywords, in lower case.
        const KEYWORDS: &[(&[u8], Tok)] = &[
            $($(($word, Tok::$keyword),)*)*
            $(($native_word, Tok::$native),)*
            (b"table", Tok::Columnfamily),
            (b"columnfamilies", Tok::Tables),
            (b"true", Tok::BooleanLiteral),
            (b"false", Tok::BooleanLiteral),
        ];
    };
}

tokens! {
    symbols {
        Eof "EOF", LexFailure "LEX_FAILURE", Hidden "WS",
        Ident "IDENT", QuotedName "QUOTED_NAME", EmptyQuotedName "EMPTY_QUOTED_NAME",
        StringLiteral "STRING_LITERAL", Integer "INTEGER", FloatLiteral "FLOAT",
        BooleanLiteral "BOOLEAN", DurationLiteral "DURATION", UuidLiteral "UUID",
        HexNumber "HEXNUMBER", NegativeNan "K_NEGATIVE_NAN",
        NegativeInfinity "K_NEGATIVE_INFINITY", ExprOpen "'expr('",
        Qmark "QMARK", Range "RANGE", Dot "'.'", Comma "','", Semicolon "';'", Colon "':'",
        ParenOpen "'('", ParenClose "')'", BracketOpen "'['", BracketClose "']'",
        BraceOpen "'{'", BraceClose "'}'", Equal "'='", NotEqual "'!='", Less "'<'",
        LessEqual "'<='", Greater "'>'", GreaterEqual "'>='", Plus "'+'", Minus "'-'",
        Star "'*'", Slash "'/'", Percent "'%'", PlusEqual "'+='", MinusEqual "'-='",
    }
    keywords {
        Reserved {
            Add b"add" "K_ADD", Allow b"allow" "K_ALLOW", Alter b"alter" "K_ALTER",
            And b"and" "K_AND", Apply b"apply" "K_APPLY", Asc b"asc" "K_ASC",
            Authorize b"authorize" "K_AUTHORIZE", Batch b"batch" "K_BATCH",
            Begin b"begin" "K_BEGIN", By b"by" "K_BY",
            Columnfamily b"columnfamily" "K_COLUMNFAMILY", Create b"create" "K_CREATE",
            Delete b"delete" "K_DELETE", Desc b"desc" "K_DESC",
            Describe b"describe" "K_DESCRIBE", Drop b"drop" "K_DROP",
            Entries b"entries" "K_ENTRIES", Execute b"execute" "K_EXECUTE",
            From b"from" "K_FROM", Full b"full" "K_FULL", Grant b"grant" "K_GRANT",
            If b"if" "K_IF", In b"in" "K_IN", Index b"index" "K_INDEX",
            Infinity b"infinity" "K_POSITIVE_INFINITY", Insert b"insert" "K_INSERT",
            Into b"into" "K_INTO", Is b"is" "K_IS", Keyspace b"keyspace" "K_KEYSPACE",
            Limit b"limit" "K_LIMIT", Materialized b"materialized" "K_MATERIALIZED",
            Modify b"modify" "K_MODIFY", Nan b"nan" "K_POSITIVE_NAN",
            Norecursive b"norecursive" "K_NORECURSIVE", Not b"not" "K_NOT",
            Null b"null" "K_NULL", Of b"of" "K_OF", On b"on" "K_ON", Or b"or" "K_OR",
            Order b"order" "K_ORDER", Primary b"primary" "K_PRIMARY",
            Rename b"rename" "K_RENAME", Revoke b"revoke" "K_REVOKE",
            Schema b"schema" "K_SCHEMA", Select b"select" "K_SELECT", Set b"set" "K_SET",
            To b"to" "K_TO", TokenWord b"token" "K_TOKEN", Truncate b"truncate" "K_TRUNCATE",
            Unlogged b"unlogged" "K_UNLOGGED", Update b"update" "K_UPDATE", Use b"use" "K_USE",
            Using b"using" "K_USING", View b"view" "K_VIEW", Where b"where" "K_WHERE",
            With b"with" "K_WITH",
        }
        Basic {
            Access b"access" "K_ACCESS", Aggregate b"aggregate" "K_AGGREGATE",
            Aggregates b"aggregates" "K_AGGREGATES", All b"all" "K_ALL", Ann b"ann" "K_ANN",
            As b"as" "K_AS", Called b"called" "K_CALLED", Cidrs b"cidrs" "K_CIDRS",
            Cluster b"cluster" "K_CLUSTER", Clustering b"clustering" "K_CLUSTERING",
            Compact b"compact" "K_COMPACT", Contains b"contains" "K_CONTAINS",
            Custom b"custom" "K_CUSTOM", Datacenters b"datacenters" "K_DATACENTERS",
            Default b"default" "K_DEFAULT", Exists b"exists" "K_EXISTS",
            Filtering b"filtering" "K_FILTERING", Finalfunc b"finalfunc" "K_FINALFUNC",
            Frozen b"frozen" "K_FROZEN", Function b"function" "K_FUNCTION",
            Functions b"functions" "K_FUNCTIONS", Group b"group" "K_GROUP",
            Hashed b"hashed" "K_HASHED", Identity b"identity" "K_IDENTITY",
            Initcond b"initcond" "K_INITCOND", Input b"input" "K_INPUT",
            Internals b"internals" "K_INTERNALS", Keys b"keys" "K_KEYS",
            Keyspaces b"keyspaces" "K_KEYSPACES", Language b"language" "K_LANGUAGE",
            Like b"like" "K_LIKE", List b"list" "K_LIST", Login b"login" "K_LOGIN",
            Map b"map" "K_MAP", Masked b"masked" "K_MASKED", Mbean b"mbean" "K_MBEAN",
            Mbeans b"mbeans" "K_MBEANS", Nologin b"nologin" "K_NOLOGIN",
            Nosuperuser b"nosuperuser" "K_NOSUPERUSER", Only b"only" "K_ONLY",
            Options b"options" "K_OPTIONS", Partition b"partition" "K_PARTITION",
            Password b"password" "K_PASSWORD", Per b"per" "K_PER",
            Permission b"permission" "K_PERMISSION", Permissions b"permissions" "K_PERMISSIONS",
            Replace b"replace" "K_REPLACE", Returns b"returns" "K_RETURNS",
            Role b"role" "K_ROLE", Roles b"roles" "K_ROLES",
            SelectMasked b"select_masked" "K_SELECT_MASKED", Sfunc b"sfunc" "K_SFUNC",
            Static b"static" "K_STATIC", Storage b"storage" "K_STORAGE",
            Stype b"stype" "K_STYPE", Superuser b"superuser" "K_SUPERUSER",
            Tables b"tables" "K_TABLES", Trigger b"trigger" "K_TRIGGER",
            Tuple b"tuple" "K_TUPLE", Type b"type" "K_TYPE", Types b"types" "K_TYPES",
            Unmask b"unmask" "K_UNMASK", Unset b"unset" "K_UNSET", User b"user" "K_USER",
            Users b"users" "K_USERS", Values b"values" "K_VALUES", Vector b"vector" "K_VECTOR",
        }
        Special {
            Cast b"cast" "K_CAST", Count b"count" "K_COUNT", Distinct b"distinct" "K_DISTINCT",
            Json b"json" "K_JSON", Key b"key" "K_KEY",
            Maxwritetime b"maxwritetime" "K_MAXWRITETIME", Ttl b"ttl" "K_TTL",
            Writetime b"writetime" "K_WRITETIME",
        }
    }
    natives {
        Ascii b"ascii" "K_ASCII", Bigint b"bigint" "K_BIGINT", Blob b"blob" "K_BLOB",
        Boolean b"boolean" "K_BOOLEAN", Counter b"counter" "K_COUNTER", Date b"date" "K_DATE",
        Decimal b"decimal" "K_DECIMAL", Double b"double" "K_DOUBLE",
        Duration b"duration" "K_DURATION", Float b"float" "K_FLOAT", Inet b"inet" "K_INET",
        Int b"int" "K_INT", Smallint b"smallint" "K_SMALLINT", Text b"text" "K_TEXT",
        Time b"time" "K_TIME", Timestamp b"timestamp" "K_TIMESTAMP",
        Timeuuid b"timeuuid" "K_TIMEUUID", Tinyint b"tinyint" "K_TINYINT",
        Uuid b"uuid" "K_UUID", Varchar b"varchar" "K_VARCHAR", Varint b"varint" "K_VARINT",
    }
}

/// Longest keyword, `columnfamilies`; words of up to 16 bytes are looked up as one number.
const KEYWORD_BYTES_MAX: usize = 14;
/// Slots of the table of keywords, a power of two: two thirds are free.
const SLOTS: usize = 512;

/// A keyword as the table has it: its bytes as one number, 0 for an empty slot.
#[derive(Clone, Copy)]
struct Slot {
    word: u128,
    kind: Tok,
}

/// Every statement that is not prepared asks for each of its words, so a word is found by its hash.
static SLOT_OF: [Slot; SLOTS] = slots();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks it")]
const fn slots() -> [Slot; SLOTS] {
    let mut slots = [Slot { word: 0, kind: Tok::Ident }; SLOTS];
    let mut index = 0;
    while index < KEYWORDS.len() {
        let (word, kind) = KEYWORDS[index];
        assert!(word.len() <= KEYWORD_BYTES_MAX);
        let word = packed(word);
        let mut at = slot_of(word);
        while slots[at].word != 0 {
            at = (at + 1) % SLOTS;
        }
        slots[at] = Slot { word, kind };
        index += 1;
    }
    slots
}

/// Packs a word of letters, digits and `_` with at most 16 bytes into one number, ignoring case.
/// The bit between upper and lower case is set in digits anyway, so no two words become equal by
/// it.
#[expect(clippy::indexing_slicing, reason = "below the length")]
const fn packed(word: &[u8]) -> u128 {
    let mut packed = 0;
    let mut at = 0;
    while at < word.len() {
        packed |= ((word[at] | 0x20) as u128) << (8 * at);
        at += 1;
    }
    packed
}

const fn slot_of(word: u128) -> usize {
    let folded = (word as u64) ^ ((word >> 64) as u64).rotate_left(29);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize % SLOTS
}

/// The keyword of a packed word; `Ident` for any other word.
fn keyword_of(word: u128) -> Tok {
    let mut at = slot_of(word);
    while let Some(slot) = SLOT_OF.get(at) {
        if slot.word == word {
            return slot.kind;
        }
        if slot.word == 0 {
            break;
        }
        at = (at + 1) % SLOTS;
    }
    Tok::Ident
}

impl Tok {
    /// The keyword, boolean, or else plain name that a word is.
    #[inline]
    pub(crate) fn of_word(word: &[u8]) -> Tok {
        if word.is_empty() || word.len() > KEYWORD_BYTES_MAX {
            return Tok::Ident;
        }
        keyword_of(packed(word))
    }

    /// Like [`Tok::of_word`], for the first `len` bytes of a text.
    #[inline]
    pub(crate) fn of_first(text: &[u8], len: usize) -> Tok {
        match text.first_chunk::<16>() {
            Some(bytes) if (1..=KEYWORD_BYTES_MAX).contains(&len) => {
                let ours = !(u128::MAX << (8 * len));
                let lower = u128::from_ne_bytes([0x20; 16]);
                keyword_of((u128::from_le_bytes(*bytes) | lower) & ours)
            }
            _ => Tok::of_word(text.get(..len).unwrap_or(&[])),
        }
    }

    /// Returns true if it can be a name: plain, quoted (not empty), or an unreserved keyword.
    #[inline]
    pub(crate) fn is_name(self) -> bool {
        matches!(self, Tok::Ident | Tok::QuotedName) || self.is_unreserved()
    }

    /// Returns true for an unreserved keyword.
    pub(crate) fn is_unreserved(self) -> bool {
        !matches!(self.class(), None | Some(Class::Reserved))
    }

    /// Returns true if it can be a function's name.
    pub(crate) fn is_function_name(self) -> bool {
        matches!(self, Tok::Ident | Tok::QuotedName | Tok::TokenWord | Tok::Count)
            || matches!(self.class(), Some(Class::Basic | Class::Native(_)))
    }

    /// Returns true if it can be a user type's name.
    pub(crate) fn is_type_name(self) -> bool {
        matches!(self, Tok::Ident | Tok::QuotedName | Tok::Key)
            || self.class() == Some(Class::Basic)
    }

    /// The built-in type that it names.
    pub(crate) fn native(self) -> Option<NativeType> {
        match self.class() {
            Some(Class::Native(ty)) => Some(ty),
            _ => None,
        }
    }
}

/// Names that no user type may have, unless quoted. Source: `reservedTypeNames` in `Parser.g`.
pub(crate) const RESERVED_TYPE_NAMES: [&str; 7] =
    ["byte", "complex", "enum", "date", "interval", "macaddr", "bitstring"];

/// Returns true if a lower-case word cannot be a name without quotes. Beyond Cassandra's reserved
/// list these are `true` and `false`.
pub fn is_reserved(word: &str) -> bool {
    let kind = Tok::of_word(word.as_bytes());
    kind == Tok::BooleanLiteral || kind.class() == Some(Class::Reserved)
}

/// A token: kind and byte range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Tok,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Token {
    /// The token as written.
    pub(crate) fn text<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.start as usize..self.end as usize).unwrap_or("")
    }

    /// The token without its quotes; every other token as written.
    pub(crate) fn value<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let raw = self.text(text);
        let (quote, doubled) = match self.kind {
            Tok::StringLiteral if raw.starts_with('$') => {
                return Cow::Borrowed(raw.get(2..raw.len() - 2).unwrap_or(""));
            }
            Tok::StringLiteral => ("'", "''"),
            Tok::QuotedName => ("\"", "\"\""),
            Tok::EmptyQuotedName => return Cow::Borrowed(""),
            _ => return Cow::Borrowed(raw),
        };
        let inner = raw.get(1..raw.len() - 1).unwrap_or("");
        if inner.contains(quote) {
            Cow::Owned(inner.replace(doubled, quote))
        } else {
            Cow::Borrowed(inner)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks a word up in the list of keywords, one by one.
    fn listed(word: &[u8]) -> Tok {
        let lower = word.to_ascii_lowercase();
        KEYWORDS.iter().find(|(w, _)| *w == lower).map_or(Tok::Ident, |(_, kind)| *kind)
    }

    #[test]
    fn every_word_is_what_the_list_says() {
        let mut words: Vec<Vec<u8>> = Vec::new();
        for (word, _) in KEYWORDS {
            words.extend([word.to_vec(), word.to_ascii_uppercase()]);
            // Its neighbours: longer, shorter, with another letter anywhere.
            words.push([word, b"s".as_slice()].concat());
            words.push(word.split_last().map(|(_, rest)| rest.to_vec()).unwrap_or_default());
            for at in 0..word.len() {
                for other in [b'a', b'_', b'9', b'X'] {
                    let mut changed = word.to_vec();
                    changed[at] = other;
                    words.push(changed);
                }
            }
        }
        words.push(b"a_name_that_is_longer_than_any_keyword".to_vec());
        let keywords = words.iter().filter(|word| listed(word) != Tok::Ident).count();
        assert!(keywords >= 2 * KEYWORDS.len() && keywords < words.len() / 2);
        for word in words {
            let shown = String::from_utf8_lossy(&word).into_owned();
            assert_eq!(Tok::of_word(&word), listed(&word), "{shown}");
            for behind in ["", " ", "(", " and much more than sixteen bytes"] {
                let text = [&word, behind.as_bytes()].concat();
                assert_eq!(Tok::of_first(&text, word.len()), listed(&word), "{shown}{behind}");
            }
        }
    }
}
