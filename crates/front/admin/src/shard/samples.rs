//! Samples of the most frequent reads and writes, on one shard.

use std::time::Duration;

use schema::Schema;
use stdx::TableId;
use store::{Sampler, StoreError};

use super::Served;
use crate::commands::selection::selected;
use crate::model::{SampleReport, SamplerReport};
use crate::request::{ActionError, SampleCommand, Selection};

impl Served {
    pub(super) fn sample(
        &self,
        command: &SampleCommand,
    ) -> Result<Vec<SamplerReport>, ActionError> {
        let (SampleCommand::Check(request)
        | SampleCommand::Begin(request)
        | SampleCommand::End(request)) = command;
        let selection = Selection {
            keyspaces: request.keyspace.clone().into_iter().collect(),
            tables: request.table.clone().into_iter().collect(),
        };
        let schema = self.membership.snapshot().schema.clone();
        let tables = match selected(&schema, &selection) {
            Ok(tables) => tables,
            // Dropped meanwhile: it has no samples.
            Err(_) if matches!(command, SampleCommand::End(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        let of_name = |name: &String| {
            let sampler = Sampler::of_name(name);
            let known = || Sampler::ALL.map(Sampler::name).join(", ");
            sampler.ok_or_else(|| {
                ActionError::Argument(format!(
                    "'{name}' sampler is not available from: [{}]",
                    known()
                ))
            })
        };
        let samplers: Vec<Sampler> =
            request.samplers.iter().map(of_name).collect::<Result<_, _>>()?;
        let duration = Duration::from_millis(request.duration);
        match command {
            SampleCommand::Check(_) => Ok(Vec::new()),
            SampleCommand::Begin(_) => {
                let failed = |error: StoreError| ActionError::Failed(error.to_string());
                for table in tables {
                    let observer = self.store.observer();
                    let begun =
                        observer.begin_sampling(table, &samplers, request.capacity, duration);
                    begun.map_err(failed)?;
                }
                Ok(Vec::new())
            }
            SampleCommand::End(_) => {
                Ok(self.end_samples(&schema, &tables, &samplers, request.count))
            }
        }
    }

    fn end_samples(
        &self,
        schema: &Schema,
        tables: &[TableId],
        samplers: &[Sampler],
        count: usize,
    ) -> Vec<SamplerReport> {
        let mut all: Vec<SamplerReport> = Vec::new();
        for sampler in samplers {
            all.push(SamplerReport { sampler: sampler.name().to_owned(), samples: Vec::new() });
        }
        for table in tables.iter().filter_map(|id| schema.tables_by_id.get(id)) {
            let name = format!("{}.{}", table.keyspace, table.name);
            let found = self.store.observer().finish_sampling(table.id, samplers, count);
            for (report, (sampler, samples)) in all.iter_mut().zip(found) {
                report.samples.extend(samples.into_iter().map(|sample| SampleReport {
                    table: name.clone(),
                    value: sample.what.text(table, sampler),
                    count: sample.count,
                    error: sample.error,
                }));
            }
        }
        all
    }
}
