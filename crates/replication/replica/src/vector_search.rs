//! Searches of the nearest rows on one node: the best rows of its shards.

use data::ClusteringComparator;
use data::command::Partitions;
use index_format::{Neighbours, VectorSearch};
use index_read::compare_places;
use internode::{ErrorReply, decode_vector_search, encode_neighbours};
use messaging::{Request, Responder};
use stdx::ShardId;
use store::StoreError;

use crate::index_search::{AdmittedSearch, Answering};
use crate::node::Node;
use crate::serve_read::{ReplicaReads, Terms};

/// Searches the shards of this node that have something of it.
///
/// # Errors
/// Those of [`crate::Replica::search_vectors`], of the first shard that fails.
pub async fn search_vectors_node<N: Node>(
    node: &N,
    search: VectorSearch,
    order: &ClusteringComparator,
) -> Result<Neighbours, StoreError> {
    let env = node.env();
    let (own, shards) = (env.rt.shard(), env.rt.shard_count());
    if let Partitions::Key(key) = &search.command.partitions {
        let owner = env.shard_map().shard_of(search.command.table, codec::token_of(key));
        return match owner == own {
            true => env.replica.search_vectors(&search).await,
            false => node.neighbours_of(owner, search).await,
        };
    }
    // The others begin before this shard searches its own.
    let others: Vec<_> = (0..shards)
        .map(ShardId)
        .filter(|shard| *shard != own)
        .map(|shard| node.neighbours_of(shard, search.clone()))
        .collect();
    let mut answers = vec![env.replica.search_vectors(&search).await?];
    for other in others {
        answers.push(other.await?);
    }
    let limit = usize::try_from(search.limit).unwrap_or(usize::MAX);
    Ok(Neighbours::merged(answers, limit, |a, b| compare_places(a, b, order)))
}

impl<N: Node> ReplicaReads<N> {
    /// Serves the verb `VectorSearch`.
    pub fn serve_vector_search(&self, request: &Request<'_>, responder: Responder) {
        let terms = Terms::of(request);
        let search = match decode_vector_search(request.payload) {
            Ok(search) => search,
            Err(error) => return responder.fail(&ErrorReply::Invalid(error.to_string())),
        };
        let answering = Answering {
            begins: format!("Searching the nearest {} rows", search.limit),
            keys: |answer: &Neighbours| answer.rows.len(),
            encode: encode_neighbours,
        };
        let this = self.clone();
        let answer = async move { this.answer_vector_search(search, terms).await };
        self.serve_keys(request, responder, answering, answer);
    }

    async fn answer_vector_search(
        &self,
        search: VectorSearch,
        terms: Terms,
    ) -> Result<Neighbours, ErrorReply> {
        let AdmittedSearch { command, facts, epoch } =
            self.admit_search(search.command.clone(), terms).await?;
        let search = VectorSearch { command, ..search };
        let (node, order) = (&self.inner.node, facts.shape.clustering());
        let answer = search_vectors_node(node, search.clone(), order).await;
        let again = async || search_vectors_node(node, search, order).await;
        self.or_with_new_index(answer, epoch, terms, again).await
    }
}
