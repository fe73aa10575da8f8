use schema::Schema;
use stdx::{Uuid, WallMicros};

use super::*;
use crate::ddl::DdlPlan;
use crate::functions::user::FunctionLimits;

/// A schema that statements change, with functions switched on.
struct World {
    schema: Schema,
    functions: UserFunctions,
}

impl World {
    fn new() -> World {
        let functions = UserFunctions::new(FunctionLimits::default());
        let mut world = World { schema: Schema::default(), functions };
        world.must(
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1}",
        );
        world
    }

    fn run(&mut self, text: &str) -> Result<(), String> {
        let statement = cql_syntax::parse(text).map_err(|e| e.message)?;
        let plan = DdlPlan::new(&statement.kind, Some("ks")).unwrap().map_err(|e| e.message)?;
        let outcome = plan.outcome(&mut DdlContext {
            schema: &self.schema,
            datacenters: &[("d", 1)],
            moving: &[],
            new_table_id: &mut || Uuid::from_u128(1),
            now: WallMicros(0),
            watch: None,
            default_factor: 1,
            default_compaction: None,
            drop_compact_storage: true,
            functions: Some(&self.functions),
            indexes: &crate::ddl::IndexSettings::default(),
        });
        for change in &outcome.map_err(|e| e.message)?.changes {
            self.schema = self.schema.apply(change).unwrap();
        }
        Ok(())
    }

    fn must(&mut self, text: &str) {
        assert_eq!(self.run(text), Ok(()), "{text}");
    }

    fn refused(&mut self, text: &str) -> String {
        self.run(text).unwrap_err()
    }
}

#[test]
fn languages_that_are_not_there_are_refused_with_what_to_use() {
    let mut world = World::new();
    for language in ["java", "javascript", "python"] {
        let text = format!(
            "CREATE FUNCTION ks.f (val int) CALLED ON NULL INPUT RETURNS int LANGUAGE {language} AS \
             'return val;'"
        );
        assert_eq!(
            world.refused(&text),
            format!(
                "Functions in language {language} are not supported by this version of Helenus: write \
                 them in Rust, C or AssemblyScript, compile them to WebAssembly and use LANGUAGE wasm"
            )
        );
    }
}

#[test]
fn webassembly_is_in_every_build() {
    let mut world = World::new();
    world.must(
        "CREATE FUNCTION ks.f (a int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE wasm AS \
         '(module (func (export \"f\") (param i32) (result i32) (local.get 0)))'",
    );
    let bad =
        "CREATE FUNCTION ks.g () CALLED ON NULL INPUT RETURNS int LANGUAGE wasm AS 'return 1'";
    let error = world.refused(bad);
    assert!(error.starts_with("Could not compile function 'ks.g' from WebAssembly: "), "{error}");
}

#[cfg(not(feature = "lua"))]
#[test]
fn a_build_without_lua_says_how_to_get_it() {
    let mut world = World::new();
    let text = "CREATE FUNCTION ks.f (val int) CALLED ON NULL INPUT RETURNS int LANGUAGE Lua AS \
                'return val'";
    assert_eq!(
        world.refused(text),
        "Functions in language lua are not in this build of Helenus: build it with the feature lua \
         (cargo build --release --features lua) on every node, or use LANGUAGE wasm"
    );
    // A function that another build compiled exists; a call of it returns the same error.
    let function = Arc::new(UserFunction {
        keyspace: "ks".into(),
        name: "f".into(),
        arg_names: vec!["val".into()],
        args: vec![CqlType::Int],
        returns: CqlType::Int,
        called_on_null_input: true,
        language: "lua".into(),
        body: "return val".into(),
    });
    let error = world.functions.callable(&function).unwrap_err();
    assert!(error.message.contains("with the feature lua"), "{error}");
}

#[cfg(feature = "lua")]
mod lua {
    use super::*;
    use crate::PlanErrorCode;
    use crate::functions::user::FUEL_PER_REQUEST;
    use crate::functions::{Args, EvalEnv};

    fn env(uuids: &UuidSource) -> EvalEnv<'_> {
        EvalEnv::of_constants(WallMicros(0), uuids)
    }

    impl World {
        fn call(&self, name: &str, args: &Args<'_>) -> Result<Option<Vec<u8>>, PlanError> {
            let keyspace = self.schema.keyspace("ks").unwrap();
            let definition = keyspace.functions_named(name).next().unwrap();
            let uuids = UuidSource::new(1).with_function_fuel(FUEL_PER_REQUEST);
            self.functions.callable(definition)?.call_with_empties(args, &env(&uuids))
        }
    }

    #[test]
    fn a_function_is_checked_when_it_is_made_and_called() {
        let mut world = World::new();
        world.must("CREATE TYPE ks.point (x int, y int)");
        world.must(
            "CREATE FUNCTION ks.twice (val int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE Lua AS \
             'return 2 * val'",
        );
        let seven = 7_i32.to_be_bytes();
        let got = world.call("twice", &[Some(&seven)]).unwrap();
        assert_eq!(got, Some(14_i32.to_be_bytes().to_vec()));
        assert_eq!(world.call("twice", &[None]), Ok(None));
        world.must(
            "CREATE FUNCTION ks.flip (p point) CALLED ON NULL INPUT RETURNS point LANGUAGE lua AS $$
             if p == nil then return nil end
             return {x = p.y, y = p.x}
             $$",
        );
        let point = |x: i32, y: i32| {
            types::wire::encode_tuple([Some(x.to_be_bytes()), Some(y.to_be_bytes())]).unwrap()
        };
        assert_eq!(world.call("flip", &[Some(&point(1, 2))]), Ok(Some(point(2, 1))));
        assert_eq!(world.call("flip", &[None]), Ok(None));
        let made = world.functions.compilations();
        world.call("flip", &[None]).unwrap();
        assert_eq!(world.functions.compilations(), made);
        for (args, body, expect) in [
            ("val int", "return 2 *", "from Lua: g:1: unexpected symbol near <eof>"),
            ("\"end\" int", "return 2", "the argument \"end\" has a name that is none in Lua"),
            ("m map<frozen<list<int>>, int>", "return 2", "its keys would be tables"),
        ] {
            let error = world.refused(&format!(
                "CREATE FUNCTION ks.g ({args}) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS '{body}'"
            ));
            assert!(error.starts_with("Could not compile function 'ks.g' from Lua: "), "{error}");
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn what_goes_wrong_is_a_function_failure() {
        let mut world = World::new();
        for (name, body, expect) in [
            ("a", "error('no')", "a:1: no"),
            ("b", "return {}", "it returned no valid int: a table is no int"),
            ("c", "while true do end", "it used more than its 10000000 units of fuel"),
            ("d", "return #string.rep('x', 5000000)", "more than its 4194304 bytes of memory"),
            ("e", "return os.time()", "attempt to index a nil value (global 'os')"),
        ] {
            world.must(&format!(
                "CREATE FUNCTION ks.{name} (val int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS \
                 $${body}$$"
            ));
            let error = world.call(name, &[None]).unwrap_err();
            let prefix = format!("execution of 'ks.{name}[int]' failed: ");
            assert!(error.message.starts_with(&prefix), "{error}");
            assert!(error.message.contains(expect), "{error}");
            assert!(matches!(error.code, PlanErrorCode::FunctionFailure { .. }), "{error}");
        }
    }

    #[test]
    fn the_calls_of_a_request_have_one_account() {
        let mut world = World::new();
        world.must(
            "CREATE FUNCTION ks.f () CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return 1'",
        );
        let keyspace = world.schema.keyspace("ks").unwrap();
        let definition = keyspace.functions_named("f").next().unwrap();
        let callable = world.functions.callable(definition).unwrap();
        let uuids = UuidSource::new(1).with_function_fuel(5_000);
        let env = env(&uuids);
        assert!(callable.call(&[], &env).is_ok());
        let left = uuids.function_fuel().get().unwrap();
        assert!((1..5_000).contains(&left), "{left}");
        callable.call(&[], &env).unwrap();
        let error = callable.call(&[], &env).unwrap_err();
        assert!(error.message.contains("units of fuel"), "{error}");
    }

    #[test]
    fn aggregates_have_states_and_final_functions_in_lua() {
        let mut world = World::new();
        world.must(
            "CREATE FUNCTION ks.plus (state map<text, bigint>, val int) CALLED ON NULL INPUT \
             RETURNS map<text, bigint> LANGUAGE lua AS $$
             if val == nil then state.nulls = (state.nulls or 0) + 1 return state end
             state.n = (state.n or 0) + 1
             state.sum = (state.sum or 0) + val
             return state
             $$",
        );
        world.must(
            "CREATE FUNCTION ks.mean (state map<text, bigint>) RETURNS NULL ON NULL INPUT \
             RETURNS tuple<double, bigint> LANGUAGE lua AS $$
             if not state.n then return nil end
             return {state.sum / state.n, state.nulls}
             $$",
        );
        world.must(
            "CREATE AGGREGATE ks.average (int) SFUNC plus STYPE map<text, bigint> FINALFUNC mean \
             INITCOND {}",
        );
        let keyspace = world.schema.keyspace("ks").unwrap();
        let definition = keyspace.aggregates_named("average").next().unwrap();
        let aggregate = world.functions.aggregate(keyspace, definition).unwrap();
        let uuids = UuidSource::new(1);
        let env = env(&uuids);
        let result = |values: &[Option<i32>]| {
            let mut state = definition.initial.clone();
            for value in values {
                let bytes = value.map(i32::to_be_bytes);
                aggregate
                    .add(&mut state, &[bytes.as_ref().map(<[u8; 4]>::as_slice)], &env)
                    .unwrap();
            }
            let bytes = aggregate.result(state.as_deref(), &env).unwrap();
            bytes.map(|bytes| definition.returns.format_cql_literal(&bytes))
        };
        assert_eq!(result(&[]), None);
        assert_eq!(result(&[Some(1), Some(4)]).as_deref(), Some("(2.5, null)"));
        assert_eq!(result(&[Some(1), None, Some(2), None]).as_deref(), Some("(1.5, 2)"));
    }
}
