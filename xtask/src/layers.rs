//! The layers of `layers.toml` and the crates of the workspace, and whether they agree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// One crate of the workspace.
pub struct Member {
    /// Its name.
    pub name: String,
    /// Directory of its manifest.
    pub directory: PathBuf,
    /// `license` of its manifest.
    pub license: Option<String>,
    /// `description` of its manifest.
    pub description: Option<String>,
    /// Workspace crates it depends on, those for tests apart.
    pub dependencies: Vec<String>,
}

/// The order of the crates.
pub struct Layers {
    /// Crate -> (layer, place in the layer).
    places: BTreeMap<String, (usize, usize)>,
    names: Vec<String>,
    permissions: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    license: Option<String>,
    description: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<PathBuf>,
}

/// The crates of the workspace by `cargo metadata`, by name.
pub fn members(root: &Path) -> Result<Vec<Member>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let mut members: Vec<Member> = metadata
        .packages
        .into_iter()
        .map(|package| Member {
            name: package.name,
            directory: package.manifest_path.parent().map(Path::to_path_buf).unwrap_or_default(),
            license: package.license,
            description: package.description,
            dependencies: package
                .dependencies
                .into_iter()
                .filter(|d| d.path.is_some() && d.kind.as_deref() != Some("dev"))
                .map(|d| d.name)
                .collect(),
        })
        .collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(members)
}

impl Layers {
    /// Reads the file. It has tables `[layer.x]` and `[crate.x]` with texts and lists on one line.
    pub fn parse(text: &str) -> Result<Layers> {
        let mut layers =
            Layers { places: BTreeMap::new(), names: Vec::new(), permissions: BTreeMap::new() };
        let mut layer_permissions: Vec<String> = Vec::new();
        let mut overrides: Vec<(String, String)> = Vec::new();
        let mut of_crate: Option<String> = None;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = || format!("layers.toml:{number}");
            if let Some(table) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                of_crate = None;
                if let Some(layer) = table.strip_prefix("layer.") {
                    layers.names.push(layer.to_owned());
                    layer_permissions.push(String::new());
                } else if let Some(name) = table.strip_prefix("crate.") {
                    of_crate = Some(name.to_owned());
                } else {
                    bail!("{}: unknown table \"{table}\"", at());
                }
                continue;
            }
            let (key, value) =
                line.split_once('=').with_context(|| format!("{}: not \"key = value\"", at()))?;
            let values: Vec<String> = value
                .trim()
                .trim_start_matches('[')
                .trim_end_matches(']')
                .split(',')
                .map(|v| v.trim().trim_matches('"').to_owned())
                .filter(|v| !v.is_empty())
                .collect();
            let first = values.first().cloned().unwrap_or_default();
            match (key.trim(), &of_crate) {
                ("permissions", Some(name)) => overrides.push((name.clone(), first)),
                ("permissions", None) => match layer_permissions.last_mut() {
                    Some(permissions) => *permissions = first,
                    None => bail!("{}: no layer yet", at()),
                },
                ("crates", None) => {
                    let layer = layers.names.len().checked_sub(1).with_context(at)?;
                    for (place, name) in values.into_iter().enumerate() {
                        let permissions = layer_permissions.last().cloned().unwrap_or_default();
                        layers.permissions.insert(name.clone(), permissions);
                        if layers.places.insert(name.clone(), (layer, place)).is_some() {
                            bail!("{}: \"{name}\" is listed twice", at());
                        }
                    }
                }
                (key, _) => bail!("{}: unknown key \"{key}\"", at()),
            }
        }
        for (name, permissions) in overrides {
            if layers.permissions.insert(name.clone(), permissions).is_none() {
                bail!("layers.toml: [crate.{name}] is in no layer");
            }
        }
        Ok(layers)
    }

    /// The row of the permission table for one crate.
    pub fn permissions(&self, name: &str) -> Option<&str> {
        self.permissions.get(name).map(String::as_str)
    }

    /// One sentence for every edge that the order does not allow and every crate that is missing.
    pub fn violations(&self, members: &[Member]) -> Vec<String> {
        let mut found = Vec::new();
        for member in members {
            let Some(&(layer, place)) = self.places.get(&member.name) else {
                found
                    .push(format!("crate \"{}\" is in no layer of xtask/layers.toml", member.name));
                continue;
            };
            for dependency in &member.dependencies {
                let Some(&(other, other_place)) = self.places.get(dependency) else {
                    continue;
                };
                let names = (self.layer(layer), self.layer(other));
                if other > layer {
                    found.push(format!(
                        "\"{}\" ({}) depends upward on \"{dependency}\" ({}): layers depend \
                         downward only",
                        member.name, names.0, names.1
                    ));
                } else if other == layer && other_place >= place {
                    found.push(format!(
                        "\"{}\" depends sideways on \"{dependency}\": inside layer {} only on \
                         crates listed before it",
                        member.name, names.0
                    ));
                }
            }
        }
        for name in self.places.keys() {
            if !members.iter().any(|m| m.name == *name) {
                found.push(format!("xtask/layers.toml lists \"{name}\", which is no crate"));
            }
        }
        found
    }

    fn layer(&self, at: usize) -> &str {
        self.names.get(at).map_or("?", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "[layer.base]\npermissions = \"pure\"\ncrates = [\"a\", \"b\"]\n\
                       [layer.top]\npermissions = \"tool\"\ncrates = [\"c\"]\n\
                       [crate.b]\npermissions = \"native\"\n";

    fn member(name: &str, dependencies: &[&str]) -> Member {
        Member {
            name: name.into(),
            directory: PathBuf::new(),
            license: None,
            description: None,
            dependencies: dependencies.iter().map(|d| (*d).to_owned()).collect(),
        }
    }

    fn violations(edges: &[(&str, &[&str])]) -> usize {
        let mut members: Vec<Member> = edges.iter().map(|(n, d)| member(n, d)).collect();
        for name in ["a", "b", "c"] {
            if !edges.iter().any(|e| e.0 == name) {
                members.push(member(name, &[]));
            }
        }
        Layers::parse(TWO).unwrap().violations(&members).len()
    }

    #[test]
    fn downward_and_earlier_are_allowed_and_nothing_else() {
        assert_eq!(violations(&[("c", &["a", "b"]), ("b", &["a"])]), 0);
        assert_eq!(violations(&[("a", &["b"])]), 1);
        assert_eq!(violations(&[("b", &["c"])]), 1);
        assert_eq!(violations(&[("d", &[])]), 1);
    }

    #[test]
    fn a_crate_overrides_the_permissions_of_its_layer() {
        let layers = Layers::parse(TWO).unwrap();
        assert_eq!(layers.permissions("a"), Some("pure"));
        assert_eq!(layers.permissions("b"), Some("native"));
        assert!(Layers::parse("[layer.x]\ncrates = [\"a\", \"a\"]\n").is_err());
        assert!(Layers::parse("[other]\n").is_err());
    }
}
