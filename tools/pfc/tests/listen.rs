// SPDX-License-Identifier: GPL-2.0

//! Tests of `pfc export --listen`, with normal, slow and hostile clients.
#![allow(clippy::disallowed_methods, reason = "texts of a test")]

mod device;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use counters_rules::abi::{Kind, Unit};
use device::{read_stderr, send_signal, wait_for_exit, wait_until, Device, KillOnDrop};
use fuzz::scale_timeout;

/// Maximum time to wait for the server, in seconds. `scale_timeout` multiplies this time by the
/// environment variable PATIENCE, if PATIENCE is set. The server's own timeouts are 5 and 30
/// seconds.
const TIMEOUT_SECONDS: u64 = 60;

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(device: &Device, more: &[&str]) -> Self {
        let args = ["export", "--openmetrics", "--listen", "127.0.0.1:0"];
        let mut child = device.spawn(&[&args[..], more].concat());
        let line = read_first_line(&mut child);
        let address = line.trim().strip_prefix("http://").expect("where it is");
        let address = address.strip_suffix("/metrics").expect("what it has");
        Self {
            address: address.into(),
            child,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        let result = stream.set_read_timeout(Some(scale_timeout(TIMEOUT_SECONDS)));
        result.expect("a socket");
        stream
    }

    /// Sends an HTTP request to the server. Returns the head and the body of the response.
    fn request(&self, request: &str) -> (String, String) {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("it listens");
        read_response(&mut stream)
    }

    fn get(&self, more: &str) -> (String, String) {
        self.request(&format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{more}\r\n"))
    }

    /// Checks that the server responds, within `scale_timeout(40)`.
    #[track_caller]
    fn assert_responds(&self) {
        let begun = Instant::now();
        let (head, body) = self.get("");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(body.ends_with("# EOF\n"), "{body}");
        assert!(begun.elapsed() < scale_timeout(40), "{:?}", begun.elapsed());
    }

    /// Returns the resident memory of the server in kB.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it runs");
        let kb = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        let kb = kb.and_then(|kb| kb.trim().strip_suffix(" kB")?.parse().ok());
        kb.expect("a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("a line");
    line
}

fn read_response(stream: &mut TcpStream) -> (String, String) {
    let mut text = Vec::new();
    // The server may reset the connection after the response, so an error of the read is ignored.
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8(text).expect("text");
    match text.split_once("\r\n\r\n") {
        Some((head, body)) => (head.to_lowercase().replacen("http", "HTTP", 1), body.into()),
        None => (text, String::new()),
    }
}

#[test]
fn pfc_export_serves_what_it_prints() {
    let device = Device::with_instances();
    let server = Server::start(&device, &["--sum", "sched"]);
    let (head, body) = server.get("");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    for part in [
        "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8",
        &format!("content-length: {}", body.len()),
    ] {
        assert!(head.contains(part), "{head}");
    }
    let printed = device.run(&["export", "--openmetrics", "--sum", "sched"]);
    assert_eq!(body, printed.ok());
    // Every request gets new values, even if the set of instances has changed.
    let number = device.fake.find("sched/context_switches").expect("known");
    device.fake.cpu(1).adjust_if_live(number, 100);
    let (_, body) = server.get("");
    assert!(body.contains("{name=\"sched/context_switches\"} 142\n"));
    let mut device = device;
    device.add("sched/new", Kind::Counter, Unit::None, 0, 1);
    assert!(server.get("").1.contains("perfcounters_sched_new_total"));
    device.fake.set_boot_id([9; 16]);
    server.assert_responds();
}

#[test]
fn pfc_export_answers_every_request_properly() {
    let device = Device::with_instances();
    let server = Server::start(&device, &[]);
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        ("GET /metrics/ HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        (
            "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi",
            "405",
        ),
        ("DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "405"),
        ("GET /metrics?x=y HTTP/1.1\r\nHost: x\r\n\r\n", "200"),
        ("GET /metrics HTTP/1.0\r\n\r\n", "200"),
        (
            "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\n\r\n",
            "200",
        ),
        ("nonsense\r\n\r\n", "400"),
        ("GET /metrics HTTP/9.9\r\n\r\n", "400"),
    ] {
        let (head, _) = server.request(request);
        let first = head.lines().next().unwrap_or_default();
        assert_eq!(first.split(' ').nth(1), Some(status), "{request} {first}");
    }
    let (head, _) = server.request("PUT /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.contains("allow: get, head"), "{head}");
    let (head, body) = server.request("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(body, "");
    assert!(head.contains("openmetrics-text") && !head.contains("content-length: 0"));
}

#[test]
fn pfc_export_is_not_stalled_by_slow_or_hostile_clients() {
    let device = Device::with_instances();
    let server = Server::start(&device, &[]);
    // Five clients connect: the first sends nothing, the second sends half of a request's head, the
    // third closes its sending side, the fourth does not read its response, and the fifth
    // disconnects.
    let silent = server.connect();
    let mut slow = server.connect();
    slow.write_all(b"GET /metr").expect("it listens");
    let half = server.connect();
    half.shutdown(Shutdown::Write).expect("a socket");
    let mut unread = server.connect();
    let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    unread.write_all(request).expect("it listens");
    drop(server.connect());
    server.assert_responds();
    // A client gets a response even if it closes its sending side after its request.
    let mut done = server.connect();
    done.write_all(request).expect("it listens");
    done.shutdown(Shutdown::Write).expect("a socket");
    assert!(read_response(&mut done).1.ends_with("# EOF\n"));
    // The head of this request is longer than the server's limit.
    let mut huge = server.connect();
    let long = [b'x'; 1 << 16];
    let _ = huge.write_all(b"GET /metrics HTTP/1.1\r\nX: ");
    for _ in 0..64 {
        if huge.write_all(&long).is_err() {
            break;
        }
    }
    let (head, _) = read_response(&mut huge);
    assert!(head.is_empty() || head.contains("431"), "{head}");
    // The body of this request does not end.
    let mut body = server.connect();
    let _ =
        body.write_all(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n");
    for _ in 0..64 {
        if body.write_all(&long).is_err() {
            break;
        }
    }
    server.assert_responds();
    // Clients that send nothing are disconnected.
    let begun = Instant::now();
    let mut waiting = silent;
    let _ = waiting.read(&mut [0; 256]);
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest);
    let limit = scale_timeout(TIMEOUT_SECONDS) - Duration::from_secs(1);
    assert!(begun.elapsed() < limit, "they are kept");
}

#[test]
fn pfc_export_has_room_for_who_comes_last() {
    let mut device = Device::new(2);
    for n in 0..4000 {
        device.add(&format!("many/{n}/things"), Kind::Counter, Unit::None, 0, 1);
    }
    let server = Server::start(&device, &[]);
    server.assert_responds();
    let before = server.memory();
    // The number of idle clients is larger than the number of clients that the server accepts.
    let idle: Vec<TcpStream> = (0..600).map(|_| server.connect()).collect();
    server.assert_responds();
    // Many clients send a request but never read the response. Each response of the server has 1.5
    // MB.
    let mut asked = Vec::new();
    for _ in 0..200 {
        let mut stream = server.connect();
        let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        if stream.write_all(request).is_ok() {
            asked.push(stream);
        }
    }
    server.assert_responds();
    let after = server.memory();
    assert!(after < before + 150 * 1024, "{before} kB, then {after} kB");
    drop((idle, asked));
    server.assert_responds();
}

/// Number of connections that a flood of clients keeps open, which is more than the server accepts.
const NR_FLOOD: usize = 700;

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn pfc_export_answers_who_is_not_that_quick_in_a_flood() {
    let device = Device::with_instances();
    let server = Server::start(&device, &[]);
    let over = AtomicBool::new(false);
    let nr_connected = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // The thread that floods the server with connections must end even if an assertion fails.
        let _end = SetOnDrop(&over);
        scope.spawn(|| {
            // This thread connects to the server in a loop. The thread keeps its newest `NR_FLOOD`
            // connections open and closes older connections.
            let mut flood = VecDeque::new();
            while !over.load(Ordering::Relaxed) {
                flood.extend(TcpStream::connect(&server.address));
                nr_connected.fetch_add(1, Ordering::Relaxed);
                if flood.len() > NR_FLOOD {
                    flood.pop_front();
                }
            }
        });
        // Wait until the thread has made more connections than the `NR_FLOOD` that it keeps open.
        wait_until("no flood", || {
            nr_connected.load(Ordering::Relaxed) > NR_FLOOD
        });
        let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        let (mut answered, mut sent_away) = (0, 0);
        // The server may disconnect a client that sends nothing for a second. On a busy machine,
        // the sleep below may take a second. The test therefore treats a disconnection as an error
        // only if it happens less than a second after the connect.
        for _ in 0..100 {
            let begun = Instant::now();
            let mut one = server.connect();
            // The client connects to the server, and sends its request 300 ms later.
            std::thread::sleep(Duration::from_millis(300));
            let _ = one.write_all(request);
            match read_response(&mut one).1.ends_with("# EOF\n") {
                true => answered += 1,
                false => sent_away += u32::from(begun.elapsed() < Duration::from_secs(1)),
            }
            if answered == 5 {
                break;
            }
        }
        assert_eq!((answered, sent_away), (5, 0));
    });
}

#[test]
fn pfc_export_ends_when_told_to() {
    let device = Device::with_instances();
    // With SIGHUP ignored, as by nohup, SIGHUP does not end pfc.
    let status = std::fs::read_to_string("/proc/self/status").expect("it runs");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let ignores_hangup = ignored.expect("a number") & 1 != 0;
    let hangup = (!ignores_hangup).then_some("HUP");
    for signal in ["TERM", "INT"].into_iter().chain(hangup) {
        let mut server = Server::start(&device, &[]);
        let mut idle = server.connect();
        server.assert_responds();
        send_signal(&server.child, signal);
        assert_eq!(wait_for_exit(&mut server.child), Some(0), "{signal}");
        assert_eq!(idle.read(&mut [0; 1]).unwrap_or(0), 0);
        assert!(TcpStream::connect(&server.address).is_err());
    }
    // After SIGKILL of a server, another server can listen on the same address.
    let mut server = Server::start(&device, &[]);
    send_signal(&server.child, "KILL");
    assert_eq!(wait_for_exit(&mut server.child), None);
    let again = ["export", "--openmetrics", "--listen", &server.address];
    let mut child = KillOnDrop(device.spawn(&again));
    let line = read_first_line(&mut child.0);
    assert!(line.contains(&server.address), "{line}");
    // While one server listens on an address, another server cannot listen on the same address.
    let run = device.run(&again);
    assert_eq!(run.exit_status, Some(2));
    assert!(run.err.contains("cannot listen on"), "{}", run.err);
}

#[test]
fn pfc_export_stays_on_this_machine_unless_told() {
    let device = Device::with_instances();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
        let run = device.run(&["export", "--openmetrics", "--listen", address]);
        assert_eq!(run.exit_status, Some(2), "{address}");
        assert!(run.err.contains("--allow-remote"), "{}", run.err);
        assert_eq!(run.err.lines().count(), 1);
    }
    let args = "export --openmetrics --allow-remote --listen 0.0.0.0:0";
    let mut child = KillOnDrop(device.spawn(&Vec::from_iter(args.split(' '))));
    let line = read_first_line(&mut child.0);
    assert!(line.starts_with("http://0.0.0.0:"), "{line}");
}

#[test]
fn pfc_export_serves_an_empty_set_and_says_what_is_wrong() {
    let device = Device::new(1);
    let server = Server::start(&device, &[]);
    server.assert_responds();
    // If the counters become unreadable, the server responds with an error and continues to run.
    device.fake.set_boot_id([7; 16]);
    std::fs::remove_file(&device.path).expect("ours");
    let (head, body) = server.get("");
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(body.contains("no such device"), "{body}");
}

#[test]
fn pfc_export_fuzz_requests() {
    let device = Device::with_instances();
    let mut server = Server::start(&device, &[]);
    let request = "GET |HEAD |POST |/metrics|/| HTTP/1.1| HTTP/1.0|%00|a| |:|,|\r\n|\n|\r\n\r\n";
    let headers = "Host: x|Accept: |*/*|;q=0|Content-Length: |18446744073709551615|\
                   Transfer-Encoding: chunked|Connection: |Upgrade: h2c|Expect: 100-continue";
    let mut parts: Vec<&str> = request.split('|').chain(headers.split('|')).collect();
    parts.push("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    fuzz::Fuzzer::new("requests").run(fuzz::word_inputs(&parts), |bytes| {
        let mut stream = server.connect();
        // The server may refuse a request before it has read the request.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    server.assert_responds();
    assert!(server.memory() < 200 << 10, "{} kB", server.memory());
    send_signal(&server.child, "TERM");
    assert_eq!(wait_for_exit(&mut server.child), Some(0));
    // A task that panics does not end the server.
    assert_eq!(read_stderr(&mut server.child), "");
}
