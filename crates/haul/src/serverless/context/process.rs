//! Starting confined processes, and watching what they use.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;

use super::Maker;
use super::watch::{self, Limits};
use crate::serverless::confine::{self, Confinement, FLAG};
use crate::serverless::handlers::HandlerOptions;

/// Where programs are looked for, before the server's own PATH: these can be reached by any user.
const PLACES: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/bin"];
/// Users that handlers run as when the server is root: one for each tenant, from here on.
pub(crate) const FIRST_USER: u32 = 1_000_000_000;
pub(crate) const USERS: u32 = 1_000_000_000;
/// Bytes of what a process complains of that are told as the reason of its end.
const COMPLAINT_BYTES: usize = 2000;
/// Bytes that are read of it at once.
const READ_BYTES: usize = 4096;
/// How long the end of the complaints is waited for once the process has ended.
const COMPLAINT_WAIT: Duration = Duration::from_millis(200);
/// How long processes that were killed may take to be gone.
const END_WAIT: Duration = Duration::from_secs(2);

/// What a process of a handler may use, and its folder.
pub(super) fn limits<'a>(
    maker: &Maker,
    options: &HandlerOptions,
    folder: &'a Folder,
    pid: Option<u32>,
) -> Limits<'a> {
    let bounds = &maker.bounds;
    Limits {
        pid,
        timeout: options.timeout_ms.map_or(bounds.timeout, Duration::from_millis),
        cpu: Some(options.cpu_ms.map_or(bounds.cpu, Duration::from_millis)),
        memory_bytes: options.memory_mb.unwrap_or(bounds.memory_mb) << 20,
        processes: bounds.processes,
        folder: &folder.path,
        folder_bytes: bounds.folder_bytes,
        folder_files: bounds.folder_files,
    }
}

/// A folder that goes when its context goes.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) user: Option<u32>,
}

impl Folder {
    pub(super) fn new(maker: &Maker, tenant: &str) -> Result<Self, String> {
        let path = maker.folder.join(format!("context-{}", maker.number()));
        // Not shared with another server's tenant of that name: the kernel counts the processes of a user.
        let place = maker.folder.display().to_string();
        let user = confine::may_choose_user().then(|| FIRST_USER + hash(&[&place, tenant]) % USERS);
        let made = std::fs::create_dir_all(&path)
            .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)))
            .and_then(|()| std::os::unix::fs::chown(&path, user, user));
        made.map_err(|error| format!("no folder could be made for a context: {}: {error}", path.display()))?;
        Ok(Folder { path, user })
    }

    /// Writes a file that the handler may read.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.path.join(name);
        let written =
            std::fs::write(&path, text).and_then(|()| std::os::unix::fs::chown(&path, self.user, self.user));
        written.map(|()| path).map_err(|error| format!("a script cannot be written: {error}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %self.path.display(), %error, "a context's folder could not be removed");
        }
    }
}

/// Spreads tenants over users; that two share one matters little: nothing else is shared.
fn hash(texts: &[&str]) -> u32 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Finds a program by name.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name));
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let places = PLACES.iter().map(|place| (*place).to_owned()).chain(path.split(':').map(str::to_owned));
    places.map(|place| Path::new(&place).join(name)).find(|path| path.is_file())
}

/// What to start.
pub(super) struct Start<'a> {
    pub(super) maker: &'a Maker,
    pub(super) folder: &'a Folder,
    pub(super) tenant: &'a str,
    pub(super) options: &'a HandlerOptions,
    /// Of the whole process; the time of one job is watched where many run in one.
    pub(super) cpu: Duration,
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(&'static str, String)>,
}

impl Start<'_> {
    /// Starts it with both ends of it in our hands.
    pub(super) fn spawn(self) -> Result<Child, String> {
        let bounds = &self.maker.bounds;
        let spec = Confinement {
            folder: self.folder.path.clone(),
            memory_bytes: self.options.memory_mb.unwrap_or(bounds.memory_mb) << 20,
            // A second more than is watched for: who is watched is told why it was ended.
            cpu_seconds: self.cpu.as_secs_f64().ceil() as u64 + 1,
            // The kernel counts the threads of all contexts of the tenant's user, those that are ending included.
            processes: bounds.processes * 2 * (self.maker.contexts_max as u64 + 1),
            file_bytes: bounds.file_bytes,
            open_files: bounds.open_files,
            network: self.options.network,
            user: self.folder.user,
            read: read_places(&self.program),
            require: self.maker.require_confinement,
            ..Confinement::default()
        };
        let spec = serde_json::to_string(&spec).map_err(|error| error.to_string())?;
        let home = self.folder.path.display().to_string();
        let mut command = Command::new(&self.maker.program);
        command
            .arg(FLAG)
            .arg(spec)
            .arg(&self.program)
            .args(&self.args)
            .current_dir(&self.folder.path)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &home)
            .env("TMPDIR", &home)
            .env("LANG", "C.UTF-8")
            .env("HAUL_TENANT", self.tenant)
            .envs(self.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command.spawn().map_err(|error| format!("{} cannot be started: {error}", self.program.display()))
    }
}

/// What a process writes to standard error: it goes to the log, and its end is the reason where there is no better one.
pub(super) struct Complaints {
    reader: Option<JoinHandle<Vec<u8>>>,
}

impl Complaints {
    /// Listens until the process has ended.
    pub(super) fn listen(child: &mut Child, tenant: &str) -> Self {
        let tenant = tenant.to_owned();
        let reader = child.stderr.take().map(|errors| tokio::spawn(listen(errors, tenant)));
        Complaints { reader }
    }

    /// The end of what was written, once the process has ended.
    pub(super) async fn last(&mut self) -> String {
        let Some(mut reader) = self.reader.take() else { return String::new() };
        let Ok(Ok(tail)) = tokio::time::timeout(COMPLAINT_WAIT, &mut reader).await else {
            reader.abort();
            return String::new();
        };
        String::from_utf8_lossy(&tail).trim().to_owned()
    }
}

async fn listen(mut errors: ChildStderr, tenant: String) -> Vec<u8> {
    let (mut tail, mut piece) = (Vec::new(), [0; READ_BYTES]);
    while let Ok(length @ 1..) = errors.read(&mut piece).await {
        let read = piece.get(..length).unwrap_or_default();
        tracing::debug!(tenant, text = %String::from_utf8_lossy(read), "a handler wrote to standard error");
        tail.extend_from_slice(read);
        tail.drain(..tail.len().saturating_sub(COMPLAINT_BYTES));
    }
    tail
}

/// An interpreter outside the usual places needs its own.
fn read_places(program: &Path) -> Vec<PathBuf> {
    let real = std::fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
    let prefix = real.parent().and_then(Path::parent).map(Path::to_owned);
    let usual =
        |path: &PathBuf| path.starts_with("/usr") || path.starts_with("/bin") || path.as_os_str() == "/";
    [prefix.filter(|path| !usual(path)), Some(real)].into_iter().flatten().collect()
}

/// Why a process has ended as it did: its status, and what it complained of.
pub(super) fn reason(status: Option<i32>, complaint: &str) -> String {
    let ended = match status {
        Some(0) => return String::new(),
        Some(status) => format!("exit {status}"),
        None => "killed".to_owned(),
    };
    if complaint.is_empty() { ended } else { format!("{ended}: {complaint}") }
}

/// Ends a process and all that belongs to it.
pub(super) fn kill(child: &mut Child) {
    if let Some(pid) = pid_of(child.id()) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.start_kill();
}

/// The same, and waits until they are gone: until then they count among the processes of their user.
pub(super) async fn end(child: &mut Child) {
    // The first of a namespace takes all others with it, and is gone when they are; the outer stage waits for it.
    let firsts: Vec<u32> = watch::children(child.id()).into_iter().filter(|pid| is_apart(*pid)).collect();
    for pid in &firsts {
        if let Some(pid) = pid_of(Some(*pid)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    if firsts.is_empty() || tokio::time::timeout(END_WAIT, child.wait()).await.is_err() {
        kill(child);
        let _ = tokio::time::timeout(END_WAIT, child.wait()).await;
    }
}

fn pid_of(pid: Option<u32>) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid?).ok()?)
}

/// Whether a process has a namespace of processes that is not the server's.
fn is_apart(pid: u32) -> bool {
    let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    space(&pid.to_string()).is_some_and(|its| Some(its) != space("self"))
}
