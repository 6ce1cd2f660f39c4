// SPDX-License-Identifier: GPL-2.0

//! The HTTP server of `pfc export --listen`, which answers `GET /metrics`.
//!
//! The crate hyper implements HTTP. The server limits the resources that clients can use:
//!
//! - Each connection serves one request. The server closes a connection after
//!   [`MAX_CONNECTION_LIFETIME`] at the latest.
//! - At most [`MAX_CONNECTIONS`] connections are open at the same time. While [`MAX_CONNECTIONS`]
//!   connections are open, a new connection replaces the oldest one. Clients that send or read
//!   slowly, or not at all, therefore do not block other clients.
//! - A connection is not replaced before it is [`MIN_CONNECTION_LIFETIME`] old. While all of
//!   [`MAX_CONNECTIONS`] open connections are younger than [`MIN_CONNECTION_LIFETIME`], new
//!   connections wait in the listen backlog. The minimum lifetime lets the server serve a client
//!   that sends its request at once, even if many others connect.
//! - All responses in flight together have at most [`MAX_TOTAL_RESPONSE_BYTES`] bytes. If a new
//!   response would raise the total size of the responses above [`MAX_TOTAL_RESPONSE_BYTES`], the
//!   server aborts other connections with responses in flight, the oldest connection first.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::signal::unix::{signal, Signal, SignalKind};
use tokio::task::{spawn_local, JoinHandle, LocalSet};
use tokio::time::{sleep, timeout};

use crate::error::{Failure, TryingTo};
use crate::export::openmetrics::{self, OpenMetricsWriter};
use crate::export::Scraper;
use crate::output::{check_stdout_open, stdout};
use crate::stat::is_signal_ignored;

/// Maximum number of connections that are open at the same time.
const MAX_CONNECTIONS: usize = 128;
/// Length of the listen backlog: the maximum number of connections that wait in the kernel until
/// the server accepts them.
///
/// If all clients are slow, the server accepts 128 connections ([`MAX_CONNECTIONS`]) per second
/// ([`MIN_CONNECTION_LIFETIME`]), so the last of 1024 connections in a full backlog waits for eight
/// seconds. Prometheus waits ten seconds for a response by default. If the backlog is full, the
/// client's TCP repeats its SYN after a second or more.
const LISTEN_BACKLOG: u32 = 1024;
/// Minimum age of an open connection at which a new connection may replace it.
const MIN_CONNECTION_LIFETIME: Duration = Duration::from_secs(1);
/// While [`MAX_CONNECTIONS`] connections are open, the server checks at this interval whether it
/// can accept another connection.
const FREE_CONNECTION_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum size of all responses in flight together, in bytes. A request whose response would be
/// larger than `MAX_TOTAL_RESPONSE_BYTES` gets an error response.
const MAX_TOTAL_RESPONSE_BYTES: usize = 128 << 20;
/// Maximum size of the head of a request, in bytes.
const MAX_REQUEST_HEAD_BYTES: usize = 16 << 10;
/// The time within which the head of a request must arrive.
const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time from accepting a connection to the end of the response.
const MAX_CONNECTION_LIFETIME: Duration = Duration::from_secs(30);
/// Maximum time that the server waits, after a signal to stop, for clients to read the responses in
/// flight.
const RESPONSE_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns an error if `address` is not a loopback address, unless `--allow-remote` is given.
pub fn check_listen_address(address: SocketAddr, remote: bool) -> Result<(), Failure> {
    if remote || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "{} is not a loopback address, and this server has no encryption and no authentication; \
         listen on 127.0.0.1 or [::1] behind a proxy that has, or use --allow-remote",
        address.ip()
    )))
}

pub fn serve_metrics(
    address: SocketAddr,
    scraper: Scraper,
    writer: OpenMetricsWriter,
) -> Result<(), Failure> {
    let server = Rc::new(MetricsServer {
        scraper: RefCell::new(scraper),
        writer: RefCell::new(writer),
        open_connections: RefCell::default(),
    });
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .trying_to("create the event loop")?
        .block_on(LocalSet::new().run_until(async {
            let mut stop = catch_stop_signals().trying_to("catch signals")?;
            let listener = open_listener(address).map_err(|e| Failure::Listen(address, e))?;
            print_server_url(&listener).map_err(Failure::Write)?;
            loop {
                tokio::select! {
                    () = wait_for_signal(&mut stop) => break,
                    accepted = server.accept_connection(&listener) => match accepted {
                        Ok(stream) => server.add_evicting_oldest(stream),
                        // An error of accept() is temporary, for example a lack of file
                        // descriptors.
                        Err(_) => sleep(Duration::from_millis(50)).await,
                    }
                }
            }
            drop(listener);
            server.drain_responses().await;
            Ok(())
        }))
}

/// Catches the signals that stop the server: SIGINT, SIGTERM, and SIGHUP unless pfc was started
/// with SIGHUP ignored.
fn catch_stop_signals() -> io::Result<Vec<Signal>> {
    let hangup = (!is_signal_ignored(SIGHUP)).then_some(SIGHUP);
    let all = [SIGINT, SIGTERM].into_iter().chain(hangup);
    all.map(|number| signal(SignalKind::from_raw(number)))
        .collect()
}

async fn wait_for_signal(signals: &mut [Signal]) {
    poll_fn(|context| {
        let mut signals = signals.iter_mut();
        match signals.any(|signal| signal.poll_recv(context).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await
}

fn open_listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)
}

/// Prints the URL of the server, because the user does not know the port if the kernel has chosen
/// it (port 0).
fn print_server_url(listener: &TcpListener) -> io::Result<()> {
    check_stdout_open()?;
    let mut out = stdout();
    writeln!(out, "http://{}/metrics", listener.local_addr()?)?;
    out.flush()
}

struct MetricsServer {
    scraper: RefCell<Scraper>,
    writer: RefCell<OpenMetricsWriter>,
    /// The open connections of the server, oldest first.
    open_connections: RefCell<VecDeque<Connection>>,
}

/// The state of one connection of the HTTP server.
struct Connection {
    task: JoinHandle<()>,
    accepted_at: Instant,
    /// The size of the connection's response in bytes; 0 before the response exists.
    response_bytes: Rc<Cell<usize>>,
}

impl MetricsServer {
    /// Waits until [`Self::must_wait_to_accept`] is false, and accepts the next connection.
    async fn accept_connection(&self, listener: &TcpListener) -> io::Result<TcpStream> {
        while self.must_wait_to_accept() {
            sleep(FREE_CONNECTION_POLL_INTERVAL).await;
        }
        Ok(listener.accept().await?.0)
    }

    /// Returns true if [`MAX_CONNECTIONS`] connections are open, and even the oldest connection is
    /// younger than [`MIN_CONNECTION_LIFETIME`].
    fn must_wait_to_accept(&self) -> bool {
        let mut connections = self.open_connections.borrow_mut();
        connections.retain(|connection| !connection.task.is_finished());
        connections.len() >= MAX_CONNECTIONS
            && connections
                .front()
                .is_some_and(|g| g.accepted_at.elapsed() < MIN_CONNECTION_LIFETIME)
    }

    /// Serves a new connection. Ends the oldest connections if [`MAX_CONNECTIONS`] are open.
    fn add_evicting_oldest(self: &Rc<Self>, stream: TcpStream) {
        let mut connections = self.open_connections.borrow_mut();
        connections.retain(|connection| !connection.task.is_finished());
        while connections.len() >= MAX_CONNECTIONS {
            if let Some(oldest) = connections.pop_front() {
                oldest.task.abort();
            }
        }
        let response_bytes = Rc::new(Cell::new(0));
        let task =
            spawn_local(Rc::clone(self).serve_connection(stream, Rc::clone(&response_bytes)));
        connections.push_back(Connection {
            task,
            accepted_at: Instant::now(),
            response_bytes,
        });
    }

    async fn serve_connection(self: Rc<Self>, stream: TcpStream, response_bytes: Rc<Cell<usize>>) {
        let answer = service_fn(|request| {
            let answer = self.answer_request(&request, &response_bytes);
            async { Ok::<_, Infallible>(answer) }
        });
        let connection = http1::Builder::new()
            .keep_alive(false)
            // Some clients close their sending side after the request and still read the response.
            .half_close(true)
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_HEAD_TIMEOUT)
            .max_buf_size(MAX_REQUEST_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), answer);
        // An error on a connection ends only that connection, so the error is ignored.
        let _ = timeout(MAX_CONNECTION_LIFETIME, connection).await;
    }

    fn answer_request(
        &self,
        request: &Request<Incoming>,
        response_bytes: &Rc<Cell<usize>>,
    ) -> Response<Full<Bytes>> {
        if request.uri().path() != "/metrics" {
            return build_error_response(
                StatusCode::NOT_FOUND,
                "not found; the counters are at /metrics\n",
            );
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut response = build_error_response(
                StatusCode::METHOD_NOT_ALLOWED,
                "method not allowed; use GET or HEAD\n",
            );
            let methods = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(ALLOW, methods);
            return response;
        }
        match self.scrape_and_format_response() {
            Ok(text) => {
                self.abort_oldest_responses(text.len(), response_bytes);
                response_bytes.set(text.len());
                build_response(StatusCode::OK, openmetrics::CONTENT_TYPE, text)
            }
            Err(failure) => {
                build_error_response(StatusCode::SERVICE_UNAVAILABLE, &format!("{failure}\n"))
            }
        }
    }

    /// Takes a scrape (a sample of the counters and tasks), and formats the scrape as the text of a
    /// response.
    fn scrape_and_format_response(&self) -> Result<Vec<u8>, Failure> {
        let scrape = self.scraper.borrow_mut().scrape()?;
        let mut text = BoundedResponseBuffer(Vec::new());
        let written = self.writer.borrow_mut().write_scrape(&scrape, &mut text);
        written.map_err(|_| {
            let size = MAX_TOTAL_RESPONSE_BYTES >> 20;
            Failure::Refused(format!(
                "the response exceeds {size} MiB; select fewer instances, or use --sum"
            ))
        })?;
        Ok(text.0)
    }

    /// Aborts connections with responses in flight, the oldest connection first, until a new
    /// response of `bytes` bytes fits into [`MAX_TOTAL_RESPONSE_BYTES`].
    fn abort_oldest_responses(&self, bytes: usize, own_bytes: &Rc<Cell<usize>>) {
        let connections = self.open_connections.borrow();
        let is_in_flight = |connection: &&Connection| {
            !connection.task.is_finished()
                && connection.response_bytes.get() > 0
                && !Rc::ptr_eq(&connection.response_bytes, own_bytes)
        };
        let total: usize = connections
            .iter()
            .filter(is_in_flight)
            .map(|g| g.response_bytes.get())
            .sum();
        let mut excess = (total + bytes).saturating_sub(MAX_TOTAL_RESPONSE_BYTES);
        for connection in connections.iter().filter(is_in_flight) {
            if excess == 0 {
                break;
            }
            connection.task.abort();
            excess = excess.saturating_sub(connection.response_bytes.take());
        }
    }

    /// Waits until clients have read the responses in flight, but at most for
    /// [`RESPONSE_DRAIN_TIMEOUT`]. Does not wait for connections that have no response yet.
    async fn drain_responses(&self) {
        let connections = self.open_connections.take();
        let _ = timeout(RESPONSE_DRAIN_TIMEOUT, async {
            for connection in connections {
                if connection.response_bytes.get() > 0 {
                    let _ = connection.task.await;
                }
            }
        })
        .await;
    }
}

/// A buffer that holds at most [`MAX_TOTAL_RESPONSE_BYTES`] bytes. A write for which the buffer has
/// no space fails.
struct BoundedResponseBuffer(Vec<u8>);

impl Write for BoundedResponseBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_TOTAL_RESPONSE_BYTES {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn build_error_response(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    build_response(status, "text/plain; charset=utf-8", why.as_bytes().to_vec())
}

fn build_response(status: StatusCode, kind: &'static str, text: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The response contains counter names, which drivers choose. `nosniff` keeps browsers from
    // parsing the response as HTML.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
