//! Reads the sources of one crate into numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::files;

/// The numbers of one crate, its tests left out.
pub struct Crate {
    /// Directory, relative to the root of the repository.
    pub path: String,
    /// Lines of its sources.
    pub lines: usize,
    /// Files and folders directly below `src`, its root apart.
    pub modules: usize,
    /// Names of the largest set of modules that import each other; empty when there is none.
    pub cycle: Vec<String>,
    /// Types with methods of their own, by name.
    pub types: BTreeMap<String, Methods>,
    /// Functions that break a limit of their own or have a parameter that does.
    pub functions: Vec<Function>,
}

/// The methods of one type, traits' apart.
#[derive(Default)]
pub struct Methods {
    /// All of them.
    pub methods: usize,
    /// Those that other crates may call.
    pub public_methods: usize,
    /// Files that have an `impl` of it.
    pub files: BTreeSet<String>,
}

/// Measures of one function.
pub struct Function {
    /// `path/of/file.rs: Type::name`.
    pub name: String,
    /// From its signature to its closing brace.
    pub lines: usize,
    /// Parameters whose type is a tuple, behind references too.
    pub tuple_parameters: usize,
    /// Parameters of type `bool`; 0 for what other crates cannot call.
    pub bool_parameters: usize,
}

/// Reads the crate in `directory`.
///
/// # Errors
/// A source that cannot be read or parsed, with its path.
pub fn measure(root: &Path, directory: &Path) -> Result<Crate> {
    let source = directory.join("src");
    let mut reader = Reader::default();
    let mut lines = 0;
    let mut modules = BTreeSet::new();
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in files::below(&source, &["rs"])? {
        let inside = path.strip_prefix(&source)?.with_extension("");
        let names: Vec<String> =
            inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if names.iter().any(|name| is_test(name)) {
            continue;
        }
        let shown = files::shown(root, &path);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
        let file = syn::parse_file(&text).map_err(|error| {
            anyhow!("cannot parse {shown}:{}: {error}", error.span().start().line)
        })?;
        lines += text.lines().count();
        reader.module = module_path(&names);
        reader.file = shown;
        reader.imports.clear();
        reader.visit_file(&file);
        if let Some(top) = reader.module.first() {
            modules.insert(top.clone());
            imports.entry(top.clone()).or_default().append(&mut reader.imports);
        }
    }
    for (module, of) in &mut imports {
        of.retain(|name| name != module && modules.contains(name));
    }
    Ok(Crate {
        path: files::shown(root, directory),
        lines,
        modules: modules.len(),
        cycle: largest_cycle(&imports),
        types: reader.types,
        functions: reader.functions,
    })
}

fn is_test(name: &str) -> bool {
    name == "testing" || name.ends_with("tests")
}

/// The module that a file is, by its path below `src` without `.rs`; empty for the crate's root.
fn module_path(names: &[String]) -> Vec<String> {
    let mut path = names.to_vec();
    if path.last().is_some_and(|last| last == "mod")
        || (path.len() == 1 && path.first().is_some_and(|only| only == "lib" || only == "main"))
    {
        path.pop();
    }
    path
}

#[derive(Default)]
struct Reader {
    /// Shown path of the file that is read.
    file: String,
    /// Its module.
    module: Vec<String>,
    /// Modules directly below the root that the file's code names.
    imports: BTreeSet<String>,
    /// Type whose `impl` is read.
    of_type: Option<String>,
    /// True if that `impl` is the type's own, of no trait.
    inherent: bool,
    types: BTreeMap<String, Methods>,
    functions: Vec<Function>,
}

impl Reader {
    /// Notes the module that a path of these segments leads to.
    fn import(&mut self, segments: &[String]) {
        let mut module = self.module.clone();
        let mut rest = segments;
        match rest.first().map(String::as_str) {
            Some("crate") => {
                module.clear();
                rest = rest.get(1..).unwrap_or_default();
            }
            Some("super") => {
                while let Some("super") = rest.first().map(String::as_str) {
                    module.pop();
                    rest = rest.get(1..).unwrap_or_default();
                }
            }
            _ => return,
        }
        module.extend_from_slice(rest);
        self.imports.extend(module.into_iter().next());
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                let mut segments = before.to_vec();
                segments.push(path.ident.to_string());
                self.tree(&segments, &path.tree);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(before, tree);
                }
            }
            syn::UseTree::Name(name) => self.leaf(before, &name.ident),
            syn::UseTree::Rename(rename) => self.leaf(before, &rename.ident),
            syn::UseTree::Glob(_) => self.import(before),
        }
    }

    fn leaf(&mut self, before: &[String], ident: &syn::Ident) {
        let mut segments = before.to_vec();
        segments.push(ident.to_string());
        self.import(&segments);
    }

    fn function(
        &mut self,
        visibility: Option<&syn::Visibility>,
        signature: &syn::Signature,
        end: usize,
    ) {
        let mut name = signature.ident.to_string();
        if let Some(of_type) = &self.of_type {
            name = format!("{of_type}::{name}");
        }
        let public = matches!(visibility, Some(syn::Visibility::Public(_)));
        let types = || {
            signature.inputs.iter().filter_map(|input| match input {
                syn::FnArg::Typed(typed) => Some(&*typed.ty),
                syn::FnArg::Receiver(_) => None,
            })
        };
        self.functions.push(Function {
            name: format!("{}: {name}", self.file),
            lines: (end + 1).saturating_sub(signature.span().start().line),
            tuple_parameters: types().filter(|ty| is_tuple(ty)).count(),
            bool_parameters: types().filter(|ty| public && is_bool(ty)).count(),
        });
    }
}

fn is_tuple(ty: &syn::Type) -> bool {
    match ty {
        syn::Type::Tuple(tuple) => tuple.elems.len() > 1,
        syn::Type::Reference(reference) => is_tuple(&reference.elem),
        syn::Type::Paren(inner) => is_tuple(&inner.elem),
        _ => false,
    }
}

fn is_bool(ty: &syn::Type) -> bool {
    matches!(ty, syn::Type::Path(path) if path.path.is_ident("bool"))
}

/// Returns true if an item exists in tests only.
fn for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Ident>().is_ok_and(|only| only == "test"))
    })
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if for_tests(&item.attrs) {
            return;
        }
        if item.content.is_some() {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !for_tests(&item.attrs) {
            self.tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.import(&segments);
        visit::visit_path(self, path);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if for_tests(&item.attrs) {
            return;
        }
        let outer = (self.of_type.take(), self.inherent);
        self.inherent = item.trait_.is_none();
        if let syn::Type::Path(path) = &*item.self_ty
            && let Some(last) = path.path.segments.last()
        {
            let name = last.ident.to_string();
            if self.inherent {
                self.types.entry(name.clone()).or_default().files.insert(self.file.clone());
            }
            self.of_type = Some(name);
        }
        visit::visit_item_impl(self, item);
        (self.of_type, self.inherent) = outer;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if for_tests(&item.attrs) {
            return;
        }
        if self.inherent
            && let Some(methods) = self.of_type.as_ref().and_then(|t| self.types.get_mut(t))
        {
            methods.methods += 1;
            methods.public_methods += usize::from(matches!(item.vis, syn::Visibility::Public(_)));
        }
        self.function(Some(&item.vis), &item.sig, item.block.span().end().line);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if for_tests(&item.attrs) {
            return;
        }
        let outer = self.of_type.take();
        self.function(Some(&item.vis), &item.sig, item.block.span().end().line);
        visit::visit_item_fn(self, item);
        self.of_type = outer;
    }
}

/// The largest strongly connected set of modules, of two at least.
fn largest_cycle(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let reach: BTreeMap<&String, BTreeSet<&String>> = imports
        .keys()
        .map(|from| {
            let mut seen = BTreeSet::new();
            let mut open: Vec<&String> = vec![from];
            while let Some(at) = open.pop() {
                for to in imports.get(at).into_iter().flatten() {
                    if seen.insert(to) {
                        open.push(to);
                    }
                }
            }
            (from, seen)
        })
        .collect();
    let mut best = Vec::new();
    for (from, seen) in &reach {
        let cycle: Vec<String> = seen
            .iter()
            .filter(|to| reach.get(**to).is_some_and(|back| back.contains(*from)))
            .map(|to| (*to).clone())
            .collect();
        if cycle.len() > best.len() && cycle.len() > 1 {
            best = cycle;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(module: &[&str], source: &str) -> Reader {
        let mut reader = Reader {
            file: "x.rs".into(),
            module: module.iter().map(|m| (*m).to_owned()).collect(),
            ..Reader::default()
        };
        reader.visit_file(&syn::parse_file(source).unwrap());
        reader
    }

    #[test]
    fn imports_are_found_wherever_a_path_can_stand() {
        let source = "use crate::{a::A, b}; use super::c::C; fn f() { super::super::d::g(); let x: crate::e::E; } \
                      #[cfg(test)] mod tests { use crate::never; }";
        let reader = read(&["here", "deeper"], source);
        let found: Vec<&str> = reader.imports.iter().map(String::as_str).collect();
        assert_eq!(found, ["a", "b", "d", "e", "here"]);
    }

    #[test]
    fn a_cycle_is_what_leads_back_through_others() {
        let edges = |list: &[(&str, &[&str])]| {
            list.iter()
                .map(|(from, to)| {
                    ((*from).to_owned(), to.iter().map(|t| (*t).to_owned()).collect())
                })
                .collect::<BTreeMap<String, BTreeSet<String>>>()
        };
        let found = largest_cycle(&edges(&[
            ("a", &["b"]),
            ("b", &["c"]),
            ("c", &["a", "d"]),
            ("d", &["e"]),
            ("e", &["d"]),
            ("f", &["a"]),
        ]));
        assert_eq!(found, ["a", "b", "c"]);
        assert!(largest_cycle(&edges(&[("a", &["b"]), ("b", &[])])).is_empty());
    }

    #[test]
    fn methods_and_parameters_are_counted_outside_of_traits_and_tests() {
        let source = "impl A { pub fn a(&self, x: bool, y: (u8, u8)) {} fn b(&self, x: bool, y: &[(u8, u8)]) {} } \
                      impl B for A { fn c(&self, z: &(u8, u8)) {} } \
                      pub(crate) fn d(x: bool) {} #[cfg(test)] fn e(y: (u8, u8)) {}";
        let reader = read(&["here"], source);
        let of_a = &reader.types["A"];
        assert_eq!((of_a.methods, of_a.public_methods, of_a.files.len()), (2, 1, 1));
        let counts: Vec<_> = reader
            .functions
            .iter()
            .map(|f| (f.name.as_str(), f.tuple_parameters, f.bool_parameters))
            .collect();
        assert_eq!(
            counts,
            [("x.rs: A::a", 1, 1), ("x.rs: A::b", 0, 0), ("x.rs: A::c", 1, 0), ("x.rs: d", 0, 0)]
        );
    }
}
