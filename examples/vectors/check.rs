// Hold a rotation against the test vectors: rustc -O check.rs && ./check vectors/core.txt
// Replace `rotate` by a call of yours. It turns the pairs of channels of one token of one head.
use std::{collections::HashMap, env, fs, process};

fn rotate(x: &[f64], position: f64, theta: &[f64], neighbours: bool, start: usize) -> Vec<f64> {
    let mut y = x.to_vec();
    for (j, turn) in theta.iter().enumerate() {
        let a = start + if neighbours { 2 * j } else { j };
        let b = if neighbours { a + 1 } else { a + theta.len() };
        let (s, c) = (position * turn).sin_cos();
        y[a] = x[a] * c - x[b] * s;
        y[b] = x[b] * c + x[a] * s;
    }
    y
}

// "-0x1.8p-1": the digits after the point are hexadecimal, the exponent is one of 2
fn number(word: &str) -> f64 {
    let Some((digits, exponent)) = word.split_once('p') else { return word.parse().unwrap() };
    let plain = digits.trim_start_matches('-').trim_start_matches("0x");
    let (whole, part) = plain.split_once('.').unwrap_or((plain, ""));
    let all = u64::from_str_radix(&format!("{whole}{part}"), 16).unwrap() as f64;
    let size = all * 2f64.powi(exponent.parse::<i32>().unwrap() - 4 * part.len() as i32);
    if digits.starts_with('-') { -size } else { size }
}

fn main() {
    let text = fs::read_to_string(env::args().nth(1).expect("name core.txt")).unwrap();
    let (mut one, mut cases, mut wrong) = (HashMap::<&str, Vec<&str>>::new(), 0, 0);
    for line in text.lines() {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        one.insert(name, words.collect());
        if name != "rotated_q" { continue } // the last line of a case
        let all = |key: &str| one[key].iter().map(|word| number(word)).collect::<Vec<f64>>();
        let (theta, q, right) = (all("theta"), all("q"), all("rotated_q"));
        let (dim, start) = (all("sizes")[3] as usize, all("start")[0] as usize);
        let mut off = 0f64;
        for (n, position) in all("positions").iter().enumerate() { // each text, head and token
            let here = n * dim..(n + 1) * dim;
            let y = rotate(&q[here.clone()], *position, &theta, one["layout"][0] == "interleaved", start);
            for (a, b) in y.iter().zip(&right[here]) { off = off.max((a - b).abs()) }
        }
        cases += 1;
        if !(off <= all("tolerance")[0]) { wrong += 1; println!("{}: off by {off:.2e}", one["case"][0]) }
    }
    println!("{} of {cases} cases pass", cases - wrong);
    process::exit((cases == 0 || wrong > 0) as i32);
}
