// SPDX-License-Identifier: GPL-2.0

//! The HTTP server for `GET /metrics`.
//!
//! hyper implements the protocol. This file limits the resources that clients can use:
//!
//! - A connection is for one request and is closed after [`LIFE`] at the latest.
//! - There are at most [`CONNECTIONS`] connections. A new one replaces the oldest one, so clients
//!   that send or read slowly, or not at all, do not block others.
//! - A connection is not replaced by a new one within [`GRACE`]; new ones wait in the backlog. A
//!   client that sends its request at once is therefore served, however many others connect.
//! - All responses in flight have at most [`BUDGET`] bytes. A new response replaces the oldest
//!   ones.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{
    HeaderValue, ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{spawn_local, JoinHandle, LocalSet};
use tokio::time::{sleep, timeout};

use crate::error::Failure;
use crate::export::accept::Media;
use crate::export::{runtime, Source, Stop, Writer};

/// Limit for connections that are open at the same time.
const CONNECTIONS: usize = 128;
/// Length of the backlog: connections that wait in the kernel until they are accepted.
///
/// With [`CONNECTIONS`] per [`GRACE`] the last one waits for eight seconds; Prometheus waits for
/// ten. If the backlog is full, TCP tries again after a second or more, behind other clients.
const WAITING: u32 = 1024;
/// The time in which a connection is not replaced by a new one.
const GRACE: Duration = Duration::from_secs(1);
/// Interval for checking whether a connection has ended, while none can be accepted.
const PAUSE: Duration = Duration::from_millis(10);
/// Limit for the bytes of all responses in flight, and so of a single response.
const BUDGET: usize = 128 << 20;
/// Limit for the head of a request in bytes.
const HEAD: usize = 16 << 10;
/// Limit for the time in which the head of a request must arrive.
const PATIENCE: Duration = Duration::from_secs(5);
/// Limit for the time from accepting a connection to the end of the response.
const LIFE: Duration = Duration::from_secs(30);
/// The time in which responses may still be read after a signal has stopped the export.
const FAREWELL: Duration = Duration::from_secs(2);

/// Refuses addresses that other machines can reach, unless `--allow-remote` is given.
pub fn allowed(address: SocketAddr, remote: bool) -> Result<(), Failure> {
    if remote || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "{} is not a loopback address, and this server has no encryption and no authentication; \
         listen on 127.0.0.1 or [::1] behind a proxy that has, or use --allow-remote",
        address.ip()
    )))
}

pub fn serve(
    address: SocketAddr,
    source: Source,
    writer: Box<dyn Writer>,
    media: Media,
) -> Result<(), Failure> {
    let server = Rc::new(Server {
        source: RefCell::new(source),
        writer: RefCell::new(writer),
        media,
        guests: RefCell::default(),
    });
    runtime()?.block_on(LocalSet::new().run_until(async {
        let mut stop = Stop::new()?;
        let listener = listen(address).map_err(|e| Failure::Listen(address, e))?;
        announce(&listener)?;
        loop {
            tokio::select! {
                () = stop.wanted() => break,
                accepted = server.next(&listener) => match accepted {
                    Ok(stream) => server.admit(stream),
                    // For example, no file descriptor is available. Such errors are temporary.
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
            }
        }
        drop(listener);
        server.farewell().await;
        Ok(())
    }))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING)
}

/// Prints the URL, because with port 0 the kernel chooses the port.
fn announce(listener: &TcpListener) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "http://{}/metrics", listener.local_addr()?)?;
    out.flush()
}

struct Server {
    source: RefCell<Source>,
    writer: RefCell<Box<dyn Writer>>,
    media: Media,
    /// The connections, oldest first.
    guests: RefCell<VecDeque<Guest>>,
}

/// The state of a connection.
struct Guest {
    task: JoinHandle<()>,
    since: Instant,
    /// The bytes of its response; 0 before there is one.
    held: Rc<Cell<usize>>,
}

impl Server {
    /// Accepts the next connection, after waiting until it may be admitted.
    async fn next(&self, listener: &TcpListener) -> io::Result<TcpStream> {
        while self.is_full() {
            sleep(PAUSE).await;
        }
        Ok(listener.accept().await?.0)
    }

    /// Returns true if the limit of connections is reached and even the oldest is younger than
    /// [`GRACE`].
    fn is_full(&self) -> bool {
        let mut guests = self.guests.borrow_mut();
        guests.retain(|guest| !guest.task.is_finished());
        guests.len() >= CONNECTIONS && guests.front().is_some_and(|g| g.since.elapsed() < GRACE)
    }

    fn admit(self: &Rc<Self>, stream: TcpStream) {
        let mut guests = self.guests.borrow_mut();
        guests.retain(|guest| !guest.task.is_finished());
        while guests.len() >= CONNECTIONS {
            if let Some(oldest) = guests.pop_front() {
                oldest.task.abort();
            }
        }
        let held = Rc::new(Cell::new(0));
        let task = spawn_local(Rc::clone(self).attend(stream, Rc::clone(&held)));
        guests.push_back(Guest {
            task,
            since: Instant::now(),
            held,
        });
    }

    async fn attend(self: Rc<Self>, stream: TcpStream, held: Rc<Cell<usize>>) {
        let answer = service_fn(|request| {
            let answer = self.answer(&request, &held);
            async { Ok::<_, Infallible>(answer) }
        });
        let talk = http1::Builder::new()
            .keep_alive(false)
            // A client may close its sending side after the request.
            .half_close(true)
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(HEAD)
            .serve_connection(TokioIo::new(stream), answer);
        // Errors concern this connection only, which is closed.
        let _ = timeout(LIFE, talk).await;
    }

    fn answer(&self, request: &Request<Incoming>, held: &Rc<Cell<usize>>) -> Response<Full<Bytes>> {
        if request.uri().path() != "/metrics" {
            return sorry(
                StatusCode::NOT_FOUND,
                "not found; the counters are at /metrics\n",
            );
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut no = sorry(
                StatusCode::METHOD_NOT_ALLOWED,
                "method not allowed; use GET or HEAD\n",
            );
            let methods = HeaderValue::from_static("GET, HEAD");
            no.headers_mut().insert(ALLOW, methods);
            return no;
        }
        let mut accepts = request.headers().get_all(ACCEPT).iter().peekable();
        let any = accepts.peek().is_none();
        if !any && !accepts.any(|a| a.to_str().is_ok_and(|a| self.media.accepted_by(a))) {
            let what = format!(
                "not acceptable; the only format is {}\n",
                self.media.content_type
            );
            return sorry(StatusCode::NOT_ACCEPTABLE, &what);
        }
        match self.text() {
            Ok(text) => {
                self.make_room(text.len(), held);
                held.set(text.len());
                reply(StatusCode::OK, self.media.content_type, text)
            }
            Err(failure) => sorry(StatusCode::SERVICE_UNAVAILABLE, &format!("{failure}\n")),
        }
    }

    /// Takes a sample and formats it.
    fn text(&self) -> Result<Vec<u8>, Failure> {
        let look = self.source.borrow_mut().look()?;
        let mut text = Bounded(Vec::new());
        let written = self.writer.borrow_mut().write(&look, &mut text);
        written.map_err(|_| {
            let size = BUDGET >> 20;
            Failure::Refused(format!(
                "the response exceeds {size} MiB; select fewer instances, or use --sum"
            ))
        })?;
        Ok(text.0)
    }

    /// Aborts the connections with the oldest responses until a new response fits into [`BUDGET`].
    fn make_room(&self, bytes: usize, mine: &Rc<Cell<usize>>) {
        let guests = self.guests.borrow();
        let waiting = |guest: &&Guest| {
            !guest.task.is_finished() && guest.held.get() > 0 && !Rc::ptr_eq(&guest.held, mine)
        };
        let held: usize = guests.iter().filter(waiting).map(|g| g.held.get()).sum();
        let mut excess = (held + bytes).saturating_sub(BUDGET);
        for guest in guests.iter().filter(waiting) {
            if excess == 0 {
                break;
            }
            guest.task.abort();
            excess = excess.saturating_sub(guest.held.take());
        }
    }

    /// Waits until responses in flight have been read, at most [`FAREWELL`]. Connections without a
    /// response are dropped.
    async fn farewell(&self) {
        let guests = self.guests.take();
        let _ = timeout(FAREWELL, async {
            for guest in guests {
                if guest.held.get() > 0 {
                    let _ = guest.task.await;
                }
            }
        })
        .await;
    }
}

/// A buffer of at most [`BUDGET`] bytes.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > BUDGET {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn sorry(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    reply(status, "text/plain; charset=utf-8", why.as_bytes().to_vec())
}

fn reply(status: StatusCode, kind: &'static str, text: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Drivers choose the names of counters, so browsers must not interpret the text as HTML.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
