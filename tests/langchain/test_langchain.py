"""Stores of LangChain and CassIO. Expected answers are those of Apache Cassandra 5.0.9."""
import asyncio
import hashlib
import os
import uuid
import warnings

import cassio
import numpy as np
import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy
from cassio.table import ClusteredMetadataVectorCassandraTable, MetadataVectorCassandraTable
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import Generation

warnings.filterwarnings("ignore")
from langchain_community.cache import CassandraCache, CassandraSemanticCache  # noqa: E402
from langchain_community.chat_message_histories import CassandraChatMessageHistory  # noqa: E402
from langchain_community.graph_vectorstores import CassandraGraphVectorStore  # noqa: E402
from langchain_community.graph_vectorstores.links import Link, add_links  # noqa: E402
from langchain_community.storage.cassandra import CassandraByteStore  # noqa: E402
from langchain_community.vectorstores import Cassandra  # noqa: E402

HOST = os.environ.get("HELENUS_HOST", "127.0.0.1")
PORT = int(os.environ.get("HELENUS_PORT", "9042"))
TEXTS = ["the cat sat", "a dog ran", "the dog sat", "cats and dogs", "a fish swam", "wide column store",
         "the fish sat on the cat"]
METADATA = [{"i": i, "kind": "db" if i == 5 else "animal", "even": i % 2 == 0, "quote": "x'y"} for i in range(7)]
IDS = [f"id{i}" for i in range(7)]


class WordEmbeddings(Embeddings):
    """A vector of 16 components from the hashes of the words of a text."""

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        vector = np.zeros(16)
        for word in text.lower().split():
            number = int(hashlib.md5(word.encode()).hexdigest(), 16)
            for i in range(4):
                vector[(number >> (8 * i)) % 16] += 1 + ((number >> (40 + 4 * i)) & 3)
        return (vector / np.linalg.norm(vector)).tolist()


EMBEDDINGS = WordEmbeddings()


@pytest.fixture(scope="session")
def where():
    """A session and a keyspace of its own, as arguments of the stores."""
    policy = WhiteListRoundRobinPolicy([HOST])
    profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(load_balancing_policy=policy, request_timeout=60)}
    cluster = Cluster([HOST], port=PORT, execution_profiles=profiles)
    session = cluster.connect()
    keyspace = "lc_" + uuid.uuid4().hex[:8]
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = "
                    "{'class': 'SimpleStrategy', 'replication_factor': 1}")
    cassio.init(session=session, keyspace=keyspace)
    yield {"session": session, "keyspace": keyspace}
    session.execute(f"DROP KEYSPACE {keyspace}")
    cluster.shutdown()


@pytest.fixture
def store(where):
    store = Cassandra(embedding=EMBEDDINGS, table_name="vs_" + uuid.uuid4().hex[:8], **where)
    assert store.add_texts(TEXTS, METADATA, ids=IDS) == IDS
    return store


def ids(documents):
    return [document.id for document in documents]


def by_cosine(query):
    """All ids, nearest first; no two of these texts are equally near."""
    query = np.array(EMBEDDINGS.embed_query(query))
    score = {name: float(query @ np.array(EMBEDDINGS.embed_query(text))) for name, text in zip(IDS, TEXTS)}
    return sorted(IDS, key=lambda name: -score[name])


def test_search_is_in_the_order_of_a_full_comparison(store):
    for query in ("the cat", "the dog sat", "fish", "column"):
        assert ids(store.similarity_search(query, k=4)) == by_cosine(query)[:4]
    best = store.similarity_search("the cat", k=1)[0]
    assert best.metadata == {"i": "0.0", "kind": "animal", "even": "true", "quote": "x'y"}


def test_scores(store):
    assert store.similarity_search_with_score("the dog sat", k=1)[0][1] == pytest.approx(1, abs=1e-6)
    scored = store.similarity_search_with_score_id("the dog", k=7)
    scores = [score for _, score, _ in scored]
    assert scores == sorted(scores, reverse=True) and len(scores) == 7
    query = np.array(EMBEDDINGS.embed_query("the dog"))
    for document, score, _ in scored:
        cosine = query @ np.array(EMBEDDINGS.embed_query(document.page_content))
        assert score == pytest.approx((1 + cosine) / 2, abs=1e-5)


def test_filters_of_metadata(store):
    def search(**filter):
        return ids(store.similarity_search("the dog", k=7, filter=filter))

    nearest = by_cosine("the dog")
    assert search(kind="db") == ["id5"]
    assert search(kind="animal", even=True) == [name for name in nearest if name in ("id0", "id2", "id4", "id6")]
    assert search(i=2) == ["id2"]
    assert search(quote="x'y") == nearest
    assert search(kind="none") == []


def test_marginal_relevance(store):
    found = ids(store.max_marginal_relevance_search("the cat", k=3, fetch_k=6, lambda_mult=0.3))
    assert found == ["id0", "id5", "id3"]
    found = ids(store.max_marginal_relevance_search("the cat", k=2, fetch_k=6, filter={"kind": "animal"}))
    assert found == ["id0", "id3"]


def test_overwritten_and_deleted_documents(store):
    store.add_texts(["a dog sat alone"], [{"kind": "new"}], ids=["id0"])
    assert ids(store.similarity_search("the cat sat", k=7))[0] == "id6"
    assert ids(store.similarity_search("dog", k=7, filter={"kind": "new"})) == ["id0"]
    store.delete(["id1", "id2"])
    assert sorted(ids(store.similarity_search("the cat sat", k=7))) == ["id0", "id3", "id4", "id5", "id6"]
    assert store.get_by_document_id("id5").page_content == "wide column store"
    assert store.get_by_document_id("id1") is None
    store.replace_metadata({"id5": {"kind": "store"}})
    assert ids(store.similarity_search("column", k=3, filter={"kind": "store"})) == ["id5"]
    assert store.delete_by_metadata_filter({"kind": "animal"}) == 3
    store.clear()
    assert store.similarity_search("x", k=5) == []


def test_async(where):
    async def run():
        store = await Cassandra.afrom_texts(TEXTS, EMBEDDINGS, METADATA, ids=IDS, table_name="vs_async", **where)
        assert ids(await store.asimilarity_search("the cat", k=3)) == by_cosine("the cat")[:3]
        await store.adelete(["id1"])
        assert len(await store.asimilarity_search("x", k=10)) == 6

    asyncio.run(run())


@pytest.mark.parametrize("indexing, searchable", [(("allow", ["kind"]), "kind"), (("deny_list", ["kind"]), "even")])
def test_chosen_metadata_is_indexed(where, indexing, searchable):
    store = Cassandra(embedding=EMBEDDINGS, table_name="vs_" + indexing[0], metadata_indexing=indexing, **where)
    store.add_texts(TEXTS, METADATA, ids=IDS)
    value, found = {"kind": ("db", 1), "even": (True, 4)}[searchable]
    assert len(store.similarity_search("cat", k=7, filter={searchable: value})) == found
    other = "even" if searchable == "kind" else "kind"
    with pytest.raises(ValueError, match="Non-indexed metadata"):
        store.similarity_search("cat", k=7, filter={other: "x"})


def test_chat_history(where):
    history = CassandraChatMessageHistory(session_id="one", table_name="chat", **where)
    messages = [HumanMessage("hi"), AIMessage("hello"), HumanMessage("q"), AIMessage("a")]
    for message in messages:
        history.add_message(message)
    assert [(type(m), m.content) for m in history.messages] == [(type(m), m.content) for m in messages]
    history.clear()
    assert history.messages == []


def test_cache(where):
    cache = CassandraCache(table_name="cache", **where)
    cache.update("prompt", "llm", [Generation(text="answer")])
    assert cache.lookup("prompt", "llm") == [Generation(text="answer")]
    assert cache.lookup("other", "llm") is None
    cache.delete("prompt", "llm")
    assert cache.lookup("prompt", "llm") is None


@pytest.mark.parametrize("measure", ["cos", "dot", "l2"])
def test_semantic_cache(where, measure):
    table = "semantic_" + measure
    cache = CassandraSemanticCache(embedding=EMBEDDINGS, table_name=table, similarity_measure=measure, **where)
    cache.update("the cat sat", "llm", [Generation(text="answer")])
    assert cache.lookup("the cat sat", "llm") == [Generation(text="answer")]
    assert cache.lookup("the cat sat", "another llm") is None
    cache.clear()
    assert cache.lookup("the cat sat", "llm") is None


def test_byte_store(where):
    store = CassandraByteStore(table="bytes", **where)
    store.mset([("k1", b"v1"), ("k2", b"v2")])
    assert store.mget(["k1", "k3"]) == [b"v1", None]
    store.mdelete(["k1"])
    assert list(store.yield_keys(prefix="k")) == ["k2"]


def test_graph_store(where):
    store = CassandraGraphVectorStore(embedding=EMBEDDINGS, table_name="graph", **where)
    documents = [Document(page_content="the cat", id="g1"), Document(page_content="a dog", id="g2")]
    add_links(documents[0], Link.outgoing("keyword", "x"))
    add_links(documents[1], Link.incoming("keyword", "x"))
    store.add_documents(documents)
    assert [d.page_content for d in store.similarity_search("cat", k=1)] == ["the cat"]
    assert {d.page_content for d in store.traversal_search("the cat", k=1, depth=2)} == {"the cat", "a dog"}


def test_clustered_table_of_cassio(where):
    table = ClusteredMetadataVectorCassandraTable(
        table="clustered", vector_dimension=3, primary_key_type=["TEXT", "INT"], ordering_in_partition="DESC",
        vector_similarity_function="DOT_PRODUCT", **where)
    for i in range(6):
        table.put(partition_id=f"p{i % 2}", row_id=i, body_blob=f"b{i}", vector=[i, 1, 2], metadata={"m": str(i // 3)})

    def search(**restrictions):
        return [row["row_id"] for row in table.ann_search([5, 1, 1], n=3, **restrictions)]

    assert search() == [5, 4, 3]
    assert search(partition_id="p0") == [4, 2, 0]
    assert search(partition_id="p0", metadata={"m": "0"}) == [2, 0]
    assert [row["row_id"] for row in table.find_entries(n=5, metadata={"m": "1"}, partition_id="p1")] == [5, 3]
    table.delete_partition("p1")
    assert search() == [4, 2, 0]


def test_source_model(where):
    table = MetadataVectorCassandraTable(table="source", vector_dimension=2, primary_key_type="TEXT",
                                         vector_source_model="bert", **where)
    table.put(row_id="r", body_blob="b", vector=[1, 0])
    assert [row["row_id"] for row in table.ann_search([1, 1], n=1)] == ["r"]
