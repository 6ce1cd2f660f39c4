// SPDX-License-Identifier: GPL-2.0

//! `GET /metrics`, for who may ask.
//!
//! hyper does the talking. What is decided here is how much of us a client can
//! have: a connection is for one request, lives for [`LIFE`] at most, and there
//! are [`CONNECTIONS`] of them with [`BUDGET`] bytes of answers. Who comes when
//! there is no room takes the place of who has been there longest; so a client
//! that sends or reads slowly, or not at all, is in nobody's way. But each has
//! [`GRACE`] for itself, and newer ones wait for that: however many come, who
//! asks at once is answered.

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

use crate::export::accept::Media;
use crate::export::{runtime, Source, Stop, Writer};
use crate::failure::Failure;

/// Connections at a time.
const CONNECTIONS: usize = 128;
/// Connections that the kernel keeps waiting for a place, for eight seconds
/// then: Prometheus waits for ten. Who does not find room there asks again only
/// after a second or more, when others are first again.
const WAITING: u32 = 1024;
/// For nobody else to take a connection's place.
const GRACE: Duration = Duration::from_secs(1);
/// Between two looks whether one has ended, when there is no room.
const PAUSE: Duration = Duration::from_millis(10);
/// Bytes of answers on their way, and so of the longest one.
const BUDGET: usize = 128 << 20;
/// Bytes of a request's head.
const HEAD: usize = 16 << 10;
/// For a request's head to arrive.
const PATIENCE: Duration = Duration::from_secs(5);
/// From accepting a connection to having answered.
const LIFE: Duration = Duration::from_secs(30);
/// For answers to be read when we are told to stop.
const FAREWELL: Duration = Duration::from_secs(2);

/// Says no to addresses that others can reach, unless that is wanted.
pub fn allowed(address: SocketAddr, remote: bool) -> Result<(), Failure> {
    if remote || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "{} is not a loopback address, and this server neither encrypts nor asks who is there; \
         listen on 127.0.0.1 or [::1] behind a proxy that does, or say --allow-remote",
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
                    // Out of descriptors, say: it passes.
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

/// Says where it is, which port 0 leaves open.
fn announce(listener: &TcpListener) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "http://{}/metrics", listener.local_addr()?)?;
    out.flush()
}

struct Server {
    source: RefCell<Source>,
    writer: RefCell<Box<dyn Writer>>,
    media: Media,
    /// In the order in which they came.
    guests: RefCell<VecDeque<Guest>>,
}

/// A connection.
struct Guest {
    task: JoinHandle<()>,
    since: Instant,
    /// Bytes of its answer.
    held: Rc<Cell<usize>>,
}

impl Server {
    /// The next connection, when there is room for it.
    async fn next(&self, listener: &TcpListener) -> io::Result<TcpStream> {
        while self.is_full() {
            sleep(PAUSE).await;
        }
        Ok(listener.accept().await?.0)
    }

    /// All places are taken by those who came just now.
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
            // A client may say that it has asked all it wants.
            .half_close(true)
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(HEAD)
            .serve_connection(TokioIo::new(stream), answer);
        // What goes wrong on a connection is the client's, and ends it.
        let _ = timeout(LIFE, talk).await;
    }

    fn answer(&self, request: &Request<Incoming>, held: &Rc<Cell<usize>>) -> Response<Full<Bytes>> {
        if request.uri().path() != "/metrics" {
            return sorry(StatusCode::NOT_FOUND, "the counters are at /metrics\n");
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut no = sorry(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD it\n");
            let methods = HeaderValue::from_static("GET, HEAD");
            no.headers_mut().insert(ALLOW, methods);
            return no;
        }
        let mut accepts = request.headers().get_all(ACCEPT).iter().peekable();
        let any = accepts.peek().is_none();
        if !any && !accepts.any(|a| a.to_str().is_ok_and(|a| self.media.accepted_by(a))) {
            let what = format!("it comes as {} only\n", self.media.content_type);
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

    /// One look at the counters.
    fn text(&self) -> Result<Vec<u8>, Failure> {
        let look = self.source.borrow_mut().look()?;
        let mut text = Bounded(Vec::new());
        let written = self.writer.borrow_mut().write(&look, &mut text);
        written.map_err(|_| {
            let size = BUDGET >> 20;
            Failure::Refused(format!(
                "this is more than {size} MiB; select less, or --sum"
            ))
        })?;
        Ok(text.0)
    }

    /// The oldest answers give way to a new one.
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

    /// Answers on their way may still arrive; who has not asked is left.
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

/// Text that may not grow without end.
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
    // Names of counters are anybody's: a browser must not take them for HTML.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
