//! Round trips of the log encoding and the rules of applying changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use codec::Reader;
use stdx::{ColumnId, TableId, TimestampMicros, Uuid};
use types::{CqlType, UdtType};

use crate::encode;
use crate::{
    Column, ColumnKind, ColumnMask, CompactForm, DroppedColumn, IndexKind, IndexMetadata,
    IndexRules, IndexTarget, KeyspaceParams, Schema, SchemaChange, SchemaError, Table, TableKind,
    TableOptions, TargetPart, UserAggregate, UserFunction, index_id,
};

fn udt(fields: &[(&str, CqlType)]) -> UdtType {
    let fields = fields.iter().map(|(n, t)| ((*n).to_owned(), t.clone())).collect();
    UdtType { keyspace: "ks".into(), name: "address".into(), fields, frozen: false }
}

fn column(id: u16, name: &str, kind: ColumnKind, ty: CqlType) -> Column {
    Column { id: ColumnId(id), name: name.into(), ty, kind }
}

fn table(version: u64) -> Table {
    let clustering = ColumnKind::Clustering { position: 0, reversed: true };
    let address = CqlType::Udt(Arc::new(udt(&[("street", CqlType::Text)])));
    let gone = column(3, "gone", ColumnKind::Regular, CqlType::Int);
    let dropped = DroppedColumn { column: gone, dropped_at: TimestampMicros(9) };
    Table {
        id: TableId(Uuid::from_u128(42)),
        keyspace: "ks".into(),
        name: "t".into(),
        kind: TableKind::Regular,
        columns: vec![
            column(0, "k", ColumnKind::PartitionKey(0), CqlType::Bigint),
            column(1, "c", clustering, CqlType::Timeuuid),
            column(2, "s", ColumnKind::Static, CqlType::vector(CqlType::Float, 3)),
            column(4, "a", ColumnKind::Regular, address),
            column(
                5,
                "m",
                ColumnKind::Regular,
                CqlType::map(CqlType::Text, CqlType::tuple([CqlType::Int, CqlType::Blob]), false),
            ),
        ],
        partition_key_count: 1,
        clustering_count: 1,
        static_count: 1,
        options: TableOptions { comment: "it's".to_owned(), ..TableOptions::default() },
        dropped: BTreeMap::from([("gone".into(), dropped)]),
        masks: BTreeMap::new(),
        indexes: Default::default(),
        version,
        next_column_id: 6,
    }
}

/// One of each kind of column, and an argument of the user type.
fn masked(version: u64) -> Table {
    let address = CqlType::Udt(Arc::new(udt(&[("street", CqlType::Text)])));
    let mask = |function: &str, args: &[(CqlType, Option<Vec<u8>>)]| ColumnMask {
        function: function.into(),
        users: None,
        args: args.to_vec(),
    };
    let args = vec![(CqlType::Text, Some(b"x".to_vec()))];
    let users = ColumnMask { function: "hide".into(), users: Some(CqlType::Int), args };
    let masks = [
        (0, mask("mask_default", &[])),
        (1, mask("mask_null", &[])),
        (2, mask("mask_inner", &[(CqlType::Int, Some(vec![0, 0, 0, 1])), (CqlType::Int, None)])),
        (4, mask("mask_replace", &[(address, Some(vec![0, 0, 0, 0]))])),
        (5, users),
    ];
    let masks = masks.into_iter().map(|(id, mask)| (ColumnId(id), mask)).collect();
    Table { masks, ..table(version) }
}

fn index(name: &str, column: &str, part: TargetPart) -> IndexMetadata {
    let options = [("class_name", "sai"), ("target", column)];
    IndexMetadata {
        id: index_id(table(1).id, name, 2),
        name: name.into(),
        kind: IndexKind::Custom,
        options: options.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        target: IndexTarget { column: column.into(), part },
        rules: IndexRules::Sai,
    }
}

fn indexed(version: u64) -> Table {
    let parts = [TargetPart::Values, TargetPart::Keys, TargetPart::Entries, TargetPart::Full];
    let mut table = table(version);
    for (name, part) in ["v", "Keys", "e", "f"].into_iter().zip(parts) {
        table.indexes = table.indexes_with(index(name, "m", part));
    }
    let options = [("target".to_owned(), "c".to_owned())].into();
    let legacy = index("c", "c", TargetPart::Simple);
    let (kind, rules) = (IndexKind::Composites, IndexRules::Legacy);
    table.indexes = table.indexes_with(IndexMetadata { options, kind, rules, ..legacy });
    let keys = IndexMetadata { kind: IndexKind::Keys, ..index("k", "k", TargetPart::Simple) };
    table.indexes = table.indexes_with(keys);
    table
}

#[test]
fn a_table_with_indexes_is_written_as_the_format_says() {
    let mut bytes = Vec::new();
    encode::table(&mut bytes, &indexed(1));
    let mut one = table(1);
    one.indexes = one.indexes_with(index("i", "m", TargetPart::Entries));
    let (mut without, mut with) = (Vec::new(), Vec::new());
    encode::table(&mut without, &table(1));
    encode::table(&mut with, &one);
    let kind = without.iter().zip(&with).position(|(a, b)| a != b).unwrap();
    assert_eq!((without[kind], with[kind]), (0, 128));
    let id = index_id(table(1).id, "i", 2);
    let mut expect = [&[1], &id.as_bytes()[..]].concat();
    expect.extend_from_slice(b"\x01i\x02\x02\x0aclass_name\x03sai\x06target\x01m\x01m\x03\x01");
    assert_eq!(with[without.len()..], expect);
    assert_eq!((bytes.len(), codec::xxh3_64(&bytes)), (673, 0x618c_984d_e0ec_07f5));
    for (rules, code) in [(IndexRules::Legacy, 0), (IndexRules::Sasi, 2)] {
        let index = IndexMetadata { rules, ..index("i", "m", TargetPart::Entries) };
        one.indexes = one.indexes_with(index);
        with.clear();
        encode::table(&mut with, &one);
        assert_eq!(with.last(), Some(&code));
    }
}

#[test]
fn a_local_index_keeps_its_target_and_is_a_plain_legacy_index_for_cassandra() {
    let local = |column: &str, part| IndexMetadata {
        kind: IndexKind::Composites,
        rules: IndexRules::Legacy,
        options: [("target".to_owned(), r#"{"pk":["k"],"ck":["m"]}"#.to_owned())].into(),
        ..index("i", column, part)
    };
    let mut one = table(1);
    one.indexes = one.indexes_with(local("m", TargetPart::Keys));
    let mut bytes = Vec::new();
    encode::table(&mut bytes, &one);
    let back = encode::read_table(&mut Reader::new(&bytes, "table")).unwrap();
    assert_eq!(back, one);
    assert!(back.indexes[0].is_local());
    let target = |index: &IndexMetadata| index.cassandra_options()["target"].clone();
    assert_eq!(target(&back.indexes[0]), "keys(m)");
    assert_eq!(target(&local("M", TargetPart::Simple)), "\"M\"");
    // A column of such a name is quoted; options of custom indexes have any text.
    let plain = |target: &str, kind| {
        let options = [("target".to_owned(), target.to_owned())].into();
        IndexMetadata { options, kind, ..local("m", TargetPart::Simple) }
    };
    let other = plain("\"{\"", IndexKind::Composites);
    assert!(!other.is_local() && !plain("{", IndexKind::Custom).is_local());
    assert_eq!(*other.cassandra_options(), other.options);
}

/// INV-schema-6.
#[test]
fn indexes_out_of_order_or_of_missing_columns_are_not_read() {
    let written = |change: fn(&mut Vec<Arc<IndexMetadata>>)| {
        let mut table = indexed(1);
        let mut indexes = table.indexes.to_vec();
        change(&mut indexes);
        table.indexes = indexes.into();
        table
    };
    assert!(written(|_| {}).has_valid_indexes());
    assert!(!written(|all| all.swap(0, 1)).has_valid_indexes());
    assert!(!written(|all| all.insert(0, all[0].clone())).has_valid_indexes());
    assert!(
        !written(|all| all.push(Arc::new(index("z", "gone", TargetPart::Simple))))
            .has_valid_indexes()
    );
    let mut bytes = Vec::new();
    encode::table(&mut bytes, &indexed(1));
    let name = bytes.windows(5).position(|at| at == b"\x04Keys").unwrap();
    bytes[name + 1] = b'~';
    assert!(encode::read_table(&mut Reader::new(&bytes, "table")).is_err());
}

/// INV-schema-6.
#[test]
fn a_name_of_an_index_is_taken_in_all_tables_of_its_keyspace() {
    let schema = schema().apply(&SchemaChange::AlterTable(indexed(2))).unwrap();
    let keyspace = schema.keyspace("ks").unwrap();
    let (found, keys) = keyspace.index("Keys").unwrap();
    assert_eq!((&*found.name, keys.target.part), ("t", TargetPart::Keys));
    let other = |table: Table| {
        let (id, name) = (TableId(Uuid::from_u128(43)), "other".into());
        SchemaChange::CreateTable(Table { id, name, ..table })
    };
    let taken = schema.apply(&other(indexed(1))).unwrap_err();
    assert!(matches!(taken, SchemaError::AlreadyExists { what: "index", .. }), "{taken}");
    let two = schema.apply(&other(table(1))).unwrap();
    let with = Table { id: TableId(Uuid::from_u128(43)), name: "other".into(), ..indexed(2) };
    let taken = two.apply(&SchemaChange::AlterTable(with.clone())).unwrap_err();
    let name = "ks.Keys".to_owned();
    assert_eq!(taken, SchemaError::AlreadyExists { what: "index", name });
    // The table may keep its own.
    let kept = Table { version: 3, indexes: indexed(3).indexes_without("Keys"), ..indexed(3) };
    let schema = two.apply(&SchemaChange::AlterTable(kept)).unwrap();
    let with =
        Table { indexes: table(1).indexes_with(index("Keys", "m", TargetPart::Keys)), ..with };
    assert!(schema.apply(&SchemaChange::AlterTable(with)).is_ok());
}

#[test]
fn an_index_that_is_made_again_has_another_id() {
    let id = table(1).id;
    assert_eq!(index_id(id, "i", 2), index_id(id, "i", 2));
    let others = [
        index_id(id, "i", 3),
        index_id(id, "j", 2),
        index_id(TableId(Uuid::from_u128(43)), "i", 2),
    ];
    assert!(others.iter().all(|other| *other != index_id(id, "i", 2)), "{others:?}");
}

fn compact(form: CompactForm) -> Table {
    Table { kind: TableKind::Compact(form), ..table(1) }
}

#[test]
fn columns_that_only_hold_what_compact_storage_holds_are_hidden() {
    let hidden = |table: &Table| -> Vec<String> {
        let all = table.columns.iter().filter(|c| table.is_hidden(c));
        all.map(|c| c.name.to_string()).collect()
    };
    assert_eq!(hidden(&table(1)), [""; 0]);
    assert_eq!(hidden(&compact(CompactForm::Static)), ["c", "a", "m"]);
    let mut dense = compact(CompactForm::Dense);
    assert_eq!(hidden(&dense), [""; 0]);
    dense.columns[4].ty = CqlType::Empty;
    assert_eq!(hidden(&dense), ["m"]);
    assert!(dense.column("m").is_some() && dense.visible_column("m").is_none());
    dense.kind = TableKind::Regular;
    assert!(dense.visible_column("m").is_some());
}

#[test]
fn a_table_without_masks_is_written_as_before_there_were_masks() {
    let mut bytes = Vec::new();
    encode::table(&mut bytes, &table(1));
    // Output of the encoder before it supported masks.
    assert_eq!((bytes.len(), codec::xxh3_64(&bytes)), (396, 0x9071_c627_9516_80af));
    let mut with = Vec::new();
    encode::table(&mut with, &masked(1));
    assert!(with.len() > bytes.len());
}

fn params() -> KeyspaceParams {
    let replication = BTreeMap::from([("class".to_owned(), "SimpleStrategy".to_owned())]);
    KeyspaceParams { durable_writes: false, replication }
}

fn schema() -> Schema {
    let create = SchemaChange::CreateKeyspace { name: "ks".into(), params: params() };
    let schema = Schema::default().apply(&create).unwrap();
    let ty = SchemaChange::CreateType(udt(&[("street", CqlType::Text)]));
    schema.apply(&ty).unwrap().apply(&SchemaChange::CreateTable(table(1))).unwrap()
}

#[test]
fn every_change_survives_its_encoding_and_no_cut_of_it_is_accepted() {
    let changes = [
        SchemaChange::CreateKeyspace { name: "ks".into(), params: params() },
        SchemaChange::AlterKeyspace { name: "ks".into(), params: params() },
        SchemaChange::DropKeyspace { name: "ks".into() },
        SchemaChange::CreateTable(table(1)),
        SchemaChange::AlterTable(table(7)),
        SchemaChange::AlterTable(masked(8)),
        SchemaChange::AlterTable(indexed(9)),
        SchemaChange::CreateTable(compact(CompactForm::Static)),
        SchemaChange::CreateTable(compact(CompactForm::Dense)),
        SchemaChange::CreateTable(compact(CompactForm::DenseCompound)),
        SchemaChange::DropTable { keyspace: "ks".into(), table: "t".into() },
        SchemaChange::CreateType(udt(&[("f", CqlType::list(CqlType::Inet, true))])),
        SchemaChange::AlterType(udt(&[("f", CqlType::set(CqlType::Varint, true))])),
        SchemaChange::DropType { keyspace: "ks".into(), name: "address".into() },
        SchemaChange::PutFunction(function(CqlType::Int)),
        SchemaChange::DropFunction {
            keyspace: "ks".into(),
            name: "f".into(),
            args: vec![CqlType::Int, CqlType::list(CqlType::Text, false)],
        },
        SchemaChange::PutAggregate(aggregate(Some("g"), Some(b"x"))),
        SchemaChange::PutAggregate(aggregate(None, None)),
        SchemaChange::DropAggregate { keyspace: "ks".into(), name: "a".into(), args: Vec::new() },
    ];
    for change in changes {
        let mut bytes = Vec::new();
        encode::change(&mut bytes, &change);
        let mut reader = Reader::new(&bytes, "change");
        assert_eq!(encode::read_change(&mut reader).unwrap(), change);
        assert!(reader.is_empty());
        for cut in 0..bytes.len() {
            let read = encode::read_change(&mut Reader::new(&bytes[..cut], "change"));
            assert!(read.is_err(), "{change:?} cut at {cut}");
        }
    }
}

#[test]
fn a_change_made_for_an_older_table_is_a_conflict() {
    let schema = schema();
    let next = schema.apply(&SchemaChange::AlterTable(table(2))).unwrap();
    assert_eq!(next.table("ks", "t").unwrap().version, 2);
    let again = next.apply(&SchemaChange::AlterTable(table(2)));
    assert_eq!(again.unwrap_err(), SchemaError::Conflict { name: "ks.t".to_owned() });
}

#[test]
fn altering_a_type_reaches_the_tables_that_use_it() {
    let schema = schema();
    let wider = udt(&[("street", CqlType::Text), ("zip", CqlType::Int)]);
    let next = schema.apply(&SchemaChange::AlterType(wider)).unwrap();
    let table = next.table("ks", "t").unwrap();
    match &table.column("a").unwrap().ty {
        CqlType::Udt(udt) => assert_eq!(udt.fields.len(), 2),
        other => panic!("{other:?}"),
    }
    assert_eq!(table.version, 2);
    let altered = schema.apply(&SchemaChange::AlterTable(masked(2))).unwrap();
    let wider = udt(&[("street", CqlType::Text), ("zip", CqlType::Int)]);
    let masks = &altered.apply(&SchemaChange::AlterType(wider)).unwrap();
    let mask = &masks.table("ks", "t").unwrap().masks[&ColumnId(4)];
    assert!(matches!(&mask.args[0].0, CqlType::Udt(udt) if udt.fields.len() == 2));
    assert!(Arc::ptr_eq(next.table_by_id(table.id).unwrap(), table));
}

#[test]
fn the_version_follows_user_keyspaces_only() {
    let schema = schema();
    let local = SchemaChange::CreateKeyspace { name: "system".into(), params: params() };
    assert_eq!(schema.apply(&local).unwrap().version, schema.version);
    let user = SchemaChange::CreateKeyspace { name: "other".into(), params: params() };
    let next = schema.apply(&user).unwrap();
    assert_ne!(next.version, schema.version);
    let back = next.apply(&SchemaChange::DropKeyspace { name: "other".into() }).unwrap();
    assert_eq!(back.version, schema.version);
}

#[test]
fn existing_and_missing_things_are_refused() {
    let schema = schema();
    let again = schema.apply(&SchemaChange::CreateTable(table(1)));
    assert!(matches!(again, Err(SchemaError::AlreadyExists { what: "table", .. })));
    let missing = SchemaChange::DropTable { keyspace: "ks".into(), table: "u".into() };
    assert!(matches!(schema.apply(&missing), Err(SchemaError::NotFound { what: "table", .. })));
    let missing = SchemaChange::DropKeyspace { name: "nope".into() };
    assert!(matches!(schema.apply(&missing), Err(SchemaError::NotFound { what: "keyspace", .. })));
}

/// `f(int, <the type>)`.
fn function(second: CqlType) -> UserFunction {
    UserFunction {
        keyspace: "ks".into(),
        name: "f".into(),
        arg_names: vec!["x".into(), "y".into()],
        args: vec![CqlType::Int, second],
        returns: CqlType::Text,
        called_on_null_input: true,
        language: "wasm".into(),
        body: "(module)".into(),
    }
}

fn aggregate(last: Option<&str>, initial: Option<&[u8]>) -> UserAggregate {
    UserAggregate {
        keyspace: "ks".into(),
        name: "a".into(),
        args: vec![CqlType::Text],
        returns: CqlType::Text,
        state_function: "f".into(),
        state_type: CqlType::Int,
        final_function: last.map(Into::into),
        initial: initial.map(<[u8]>::to_vec),
    }
}

#[test]
fn a_keyspace_without_functions_is_written_as_before_there_were_functions() {
    let schema = schema();
    let mut bytes = Vec::new();
    encode::keyspace(&mut bytes, schema.keyspace("ks").unwrap());
    let mut expect = Vec::new();
    encode::table(&mut expect, schema.table("ks", "t").unwrap());
    assert!(bytes.ends_with(&expect));
    let with = schema.apply(&SchemaChange::PutFunction(function(CqlType::Text))).unwrap();
    assert_ne!(with.version, schema.version);
    let args = vec![CqlType::Int, CqlType::Text];
    let drop = |args: &[CqlType]| SchemaChange::DropFunction {
        keyspace: "ks".into(),
        name: "f".into(),
        args: args.to_vec(),
    };
    assert!(matches!(with.apply(&drop(&args[..1])), Err(SchemaError::NotFound { .. })));
    assert_eq!(with.apply(&drop(&args)).unwrap().version, schema.version);
}

/// INV-schema-5.
#[test]
fn functions_of_a_name_differ_by_types_and_are_replaced_by_the_same() {
    let mut schema = schema();
    let put = |schema: &Schema, second: CqlType| {
        schema.apply(&SchemaChange::PutFunction(function(second))).unwrap()
    };
    schema = put(&schema, CqlType::Text);
    schema = put(&schema, CqlType::list(CqlType::Int, false));
    schema = put(&schema, CqlType::Int);
    let names = |schema: &Schema| {
        let keyspace = schema.keyspace("ks").unwrap();
        keyspace.functions.iter().map(|f| f.args[1].to_cql_name()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&schema), "int list<int> text");
    // Frozen or not is the same function.
    let replaced = put(&schema, CqlType::list(CqlType::Int, true));
    assert_eq!(names(&replaced), "frozen<list<int>> int text");
    let keyspace = replaced.keyspace("ks").unwrap();
    assert!(keyspace.function("f", &[CqlType::Int, CqlType::Text]).is_some());
    assert!(keyspace.function("f", &[CqlType::Text, CqlType::Text]).is_none());
    let uses = aggregate(None, None);
    assert!(uses.calls(keyspace.function("f", &[CqlType::Int, CqlType::Text]).unwrap()));
    assert!(!uses.calls(keyspace.function("f", &[CqlType::Int, CqlType::Int]).unwrap()));
}

#[test]
fn a_changed_user_type_reaches_the_functions_that_use_it() {
    let before = CqlType::Udt(Arc::new(udt(&[("street", CqlType::Text)])));
    let schema = schema().apply(&SchemaChange::PutFunction(function(before))).unwrap();
    assert_eq!(schema.keyspace("ks").unwrap().functions_using_type("address").len(), 1);
    let changed = udt(&[("street", CqlType::Text), ("zip", CqlType::Int)]);
    let schema = schema.apply(&SchemaChange::AlterType(changed.clone())).unwrap();
    let function = &schema.keyspace("ks").unwrap().functions[0];
    assert_eq!(function.args[1], CqlType::Udt(Arc::new(changed)));
}

#[test]
fn columns_are_encoded_by_the_bytes_of_their_names_and_decoded_in_cassandras_order() {
    let mut table = table(1);
    let regular = |id, name| column(id, name, ColumnKind::Regular, CqlType::Int);
    table.columns.extend([regular(6, "é"), regular(7, "Z")]);
    table.next_column_id = 8;
    let names = |table: &Table| -> Vec<String> {
        table.regulars().iter().map(|c| c.name.to_string()).collect()
    };
    crate::column_order::sort_columns(&mut table.columns);
    assert_eq!(names(&table), ["é", "Z", "a", "m"]);
    let mut bytes = Vec::new();
    encode::table(&mut bytes, &table);
    let at = |name: &str| {
        let mut text = vec![name.len() as u8];
        text.extend_from_slice(name.as_bytes());
        bytes.windows(text.len()).position(|window| window == text).unwrap()
    };
    let places = [at("Z"), at("a"), at("m"), at("é")];
    assert!(places.is_sorted(), "{places:?}: builds before this order read such tables too");
    assert_eq!(encode::read_table(&mut Reader::new(&bytes, "table")), Ok(table));

    // Any other order is none that was ever written.
    let (z, e) = (at("Z"), at("é"));
    for (at, byte) in [(z + 1, b'n'), (e + 1, b'A'), (e + 2, b'B')] {
        bytes[at] = byte;
    }
    assert!(encode::read_table(&mut Reader::new(&bytes, "table")).is_err());
}
