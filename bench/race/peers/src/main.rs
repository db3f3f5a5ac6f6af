// SPDX-License-Identifier: Apache-2.0
//! peers TRACE WORKERS BLOCKS_PER_HASH INDEX [--count-bytes]
//!
//! Feeds one published index with the stream of `stator index-bench` and prints what that prints:
//! request i goes to worker i mod WORKERS, what the worker lacks is stored, nothing is evicted; then
//! every request is looked up three times, and the third pass is timed one by one. Hashing is done
//! before the clock starts. With --count-bytes every allocation is counted, which costs time: take
//! the bytes from such a run and the times from one without.
use dynamo_kv_router::indexer::{SyncIndexer, WorkerTask};
use dynamo_kv_router::protocols as dynamo;
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, PositionalIndexer, RadixTree};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::Instant;

struct CountingAllocator;
static COUNTING: AtomicBool = AtomicBool::new(false);
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTING.load(Relaxed) {
            LIVE_BYTES.fetch_add(layout.size() as i64, Relaxed);
        }
        System.alloc(layout)
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if COUNTING.load(Relaxed) {
            LIVE_BYTES.fetch_sub(layout.size() as i64, Relaxed);
        }
        System.dealloc(at, layout)
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn live_bytes() -> i64 {
    LIVE_BYTES.load(Relaxed)
}

/// Content of block `part` of a trace's 512-token block; as `stator index-bench` mixes it.
fn content_hash(id: u64, parts: u64, part: u64) -> u64 {
    let mut x = id
        .wrapping_mul(parts)
        .wrapping_add(part + 1)
        .wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

struct Prompt {
    contents: Vec<u64>,
    names: Vec<u64>, // what engines call the blocks: hashes of everything up to there
}

fn read_prompts(path: &str, parts: u64) -> Vec<Prompt> {
    let text = std::fs::read_to_string(path).expect("the trace can be read");
    let read = |line: &str| {
        let json: serde_json::Value = serde_json::from_str(line).expect("a JSON object a line");
        let ids = json["hash_ids"].as_array().expect("hash_ids").clone();
        let contents: Vec<u64> = ids
            .iter()
            .map(|id| id.as_u64().expect("whole numbers"))
            .flat_map(|id| (0..parts).map(move |part| content_hash(id, parts, part)))
            .collect();
        let local: Vec<_> = contents.iter().map(|c| dynamo::LocalBlockHash(*c)).collect();
        let names = dynamo::compute_seq_hash_for_block(&local);
        Prompt { contents, names }
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(read).collect()
}

/// One event: blocks [from, end) of a prompt, on a worker.
struct Store<'a> {
    worker: u32,
    prompt: &'a Prompt,
    from: usize,
}

fn make_stores(prompts: &[Prompt], workers: u32) -> Vec<Store<'_>> {
    let mut held: Vec<HashSet<u64>> = vec![HashSet::new(); workers as usize];
    let mut stores = Vec::new();
    for (i, prompt) in prompts.iter().enumerate() {
        let worker = i % workers as usize;
        let mine = &mut held[worker];
        let from = prompt.names.iter().take_while(|name| mine.contains(name)).count();
        mine.extend(&prompt.names[from..]);
        if from < prompt.names.len() {
            stores.push(Store { worker: worker as u32, prompt, from });
        }
    }
    stores
}

#[derive(Default)]
struct Figures {
    apply_seconds: f64,
    bytes: i64,
    lookup_ns: Vec<u64>,
    score_sum: u64,
}

fn look_up_all<Query>(queries: &[Query], figures: &mut Figures, find: impl Fn(&Query) -> u64) {
    for _ in 0..3 {
        figures.score_sum = 0;
        figures.lookup_ns.clear();
        for query in queries {
            let start = Instant::now();
            let score = find(query);
            figures.lookup_ns.push(start.elapsed().as_nanos() as u64);
            figures.score_sum += score;
        }
    }
}

fn dynamo_event(number: usize, store: &Store) -> dynamo::RouterEvent {
    use dynamo::ExternalSequenceBlockHash as Name;
    let block = |i: usize| dynamo::KvCacheStoredBlockData {
        block_hash: Name(store.prompt.names[i]),
        tokens_hash: dynamo::LocalBlockHash(store.prompt.contents[i]),
        mm_extra_info: None,
    };
    let data = dynamo::KvCacheStoreData {
        parent_hash: store.from.checked_sub(1).map(|i| Name(store.prompt.names[i])),
        start_position: None,
        blocks: (store.from..store.prompt.names.len()).map(block).collect(),
    };
    dynamo::RouterEvent::new(
        u64::from(store.worker),
        dynamo::KvCacheEvent {
            event_id: number as u64,
            data: dynamo::KvCacheEventData::Stored(data),
            dp_rank: 0,
        },
    )
}

fn dynamo_queries(prompts: &[Prompt]) -> Vec<Vec<dynamo::LocalBlockHash>> {
    let query = |p: &Prompt| p.contents.iter().map(|c| dynamo::LocalBlockHash(*c)).collect();
    prompts.iter().map(query).collect()
}

fn dynamo_score(scores: &dynamo::OverlapScores) -> u64 {
    scores.scores.values().map(|blocks| u64::from(*blocks)).sum()
}

/// An index that readers share with one writer thread, which owns the map from names to blocks: it is
/// measured while that thread lives.
fn race_dynamo_shared(index: impl SyncIndexer, prompts: &[Prompt], stores: &[Store]) -> Figures {
    let mut figures = Figures::default();
    let before = live_bytes();
    let (tasks, inbox) = flume::unbounded();
    for (i, store) in stores.iter().enumerate() {
        tasks.send(WorkerTask::Event(dynamo_event(i, store))).expect("the inbox is open");
    }
    let events = live_bytes() - before;
    let queries = dynamo_queries(prompts);
    let other = live_bytes() - before - events;
    std::thread::scope(|scope| {
        let (done, drained) = tokio::sync::oneshot::channel();
        tasks.send(WorkerTask::Flush(done)).expect("the inbox is open");
        let start = Instant::now();
        scope.spawn(|| index.worker(inbox, None).expect("the writer works"));
        drained.blocking_recv().expect("the writer drains");
        figures.apply_seconds = start.elapsed().as_secs_f64();
        // Drained events are freed.
        figures.bytes = live_bytes() - before - other;
        look_up_all(&queries, &mut figures, |q| dynamo_score(&index.find_matches(q, false)));
        tasks.send(WorkerTask::Terminate).expect("the inbox is open");
    });
    figures
}

fn race_dynamo_radix(prompts: &[Prompt], stores: &[Store]) -> Figures {
    let mut figures = Figures::default();
    let before = live_bytes();
    let events: Vec<_> = stores.iter().enumerate().map(|(i, s)| dynamo_event(i, s)).collect();
    let mut index = RadixTree::new();
    let start = Instant::now();
    for event in events {
        index.apply_event(event).expect("the stream is in order");
    }
    figures.apply_seconds = start.elapsed().as_secs_f64();
    figures.bytes = live_bytes() - before;
    // Its look-up takes the query away from the caller: copied outside the clock.
    let queries = dynamo_queries(prompts);
    for _ in 0..3 {
        figures.score_sum = 0;
        figures.lookup_ns.clear();
        for query in &queries {
            let own = query.clone();
            let start = Instant::now();
            let found = index.find_matches(own, false);
            figures.lookup_ns.push(start.elapsed().as_nanos() as u64);
            figures.score_sum += dynamo_score(&found);
        }
    }
    figures
}

fn race_smg_chain(prompts: &[Prompt], stores: &[Store], workers: u32) -> Figures {
    let mut figures = Figures::default();
    let before = live_bytes();
    let index = kv_index::ChainIndex::with_max_workers(workers as usize);
    let ids: Vec<u32> = (0..workers)
        .map(|w| index.intern_worker(&format!("http://worker-{w}")).expect("there is room"))
        .collect();
    let mut maps: Vec<kv_index::ChainBlockMap> = (0..workers).map(|_| Default::default()).collect();
    let empty = live_bytes() - before;
    let event = |store: &Store| {
        let blocks: Vec<_> = (store.from..store.prompt.names.len())
            .map(|i| kv_index::StoredBlock {
                seq_hash: kv_index::SequenceHash(store.prompt.names[i]),
                content_hash: kv_index::ContentHash(store.prompt.contents[i]),
            })
            .collect();
        let parent = store.from.checked_sub(1).map(|i| store.prompt.names[i].into());
        (store.worker as usize, parent, blocks)
    };
    let events: Vec<_> = stores.iter().map(event).collect();
    let prepared = live_bytes();
    let start = Instant::now();
    for (worker, parent, blocks) in &events {
        index
            .apply_stored(ids[*worker], blocks, *parent, &mut maps[*worker])
            .expect("the stream is in order");
    }
    figures.apply_seconds = start.elapsed().as_secs_f64();
    figures.bytes = live_bytes() - prepared + empty;
    let query = |p: &Prompt| -> Vec<_> { p.contents.iter().map(|c| kv_index::ContentHash(*c)).collect() };
    let queries: Vec<_> = prompts.iter().map(query).collect();
    look_up_all(&queries, &mut figures, |q| {
        index.find_matches(q, false).scores.values().map(|blocks| u64::from(*blocks)).sum()
    });
    figures
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let usage = "usage: peers TRACE WORKERS BLOCKS_PER_HASH INDEX [--count-bytes]";
    let number = |i: usize| arguments.get(i).and_then(|a| a.parse::<u32>().ok()).expect(usage);
    let (workers, parts) = (number(2), number(3));
    COUNTING.store(arguments.iter().any(|a| a == "--count-bytes"), Relaxed);
    let prompts = read_prompts(arguments.get(1).expect(usage), u64::from(parts));
    let stores = make_stores(&prompts, workers);
    let blocks: usize = stores.iter().map(|s| s.prompt.names.len() - s.from).sum();
    let name = arguments.get(4).expect(usage).as_str();
    let mut figures = match name {
        "dynamo-radix" => race_dynamo_radix(&prompts, &stores),
        "dynamo-compressed" => race_dynamo_shared(ConcurrentRadixTreeCompressed::new(), &prompts, &stores),
        "dynamo-positional" => race_dynamo_shared(PositionalIndexer::new(8), &prompts, &stores),
        "smg-chain" => race_smg_chain(&prompts, &stores, workers),
        _ => panic!("INDEX is dynamo-radix, dynamo-compressed, dynamo-positional or smg-chain"),
    };
    figures.lookup_ns.sort_unstable();
    let quantile = |q: f64| figures.lookup_ns[(q * (figures.lookup_ns.len() - 1) as f64) as usize];
    let json = serde_json::json!({
        "index": name,
        "requests": prompts.len(),
        "blocks": blocks,
        "lookup_p50_ns": quantile(0.50),
        "lookup_p99_ns": quantile(0.99),
        "apply_blocks_per_s": blocks as f64 / figures.apply_seconds,
        "bytes_per_holder_block": figures.bytes as f64 / blocks as f64,
        "score_sum": figures.score_sum,
    });
    println!("{json}");
}
