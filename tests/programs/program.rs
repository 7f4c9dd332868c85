// Maps, strings and threads: Rust's own allocator is malloc, aligned_alloc, realloc and free of whatever is preloaded.
use std::collections::BTreeMap;
use std::thread;

fn work(part: u64, count: u64) -> (usize, u64) {
    let mut map: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for i in 0..count {
        let key = format!("k{}", (i * 7919 + part) % 65537);
        map.entry(key).or_default().extend_from_slice(&[(i % 251) as u8; 20]);
        if i % 3 == 0 {
            map.remove(&format!("k{}", i % 1000));
        }
    }
    let sum = map.values().map(|v| v.iter().map(|&b| u64::from(b)).sum::<u64>()).sum();
    (map.len(), sum)
}

#[repr(align(256))]
#[derive(Clone)]
struct Aligned([u8; 256]);

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1000);
    let threads: Vec<_> = (0..4).map(|part| thread::spawn(move || work(part, count / 4))).collect();
    for thread in threads {
        println!("{:?}", thread.join().unwrap());
    }
    let boxes: Vec<Box<Aligned>> = (0..1000).map(|i| Box::new(Aligned([i as u8; 256]))).collect();
    assert!(boxes.iter().all(|b| (b.as_ref() as *const Aligned as usize) % 256 == 0));
    println!("{}", boxes.iter().map(|b| u64::from(b.0[255])).sum::<u64>());
    std::process::exit(10);
}
