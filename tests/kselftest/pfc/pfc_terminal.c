// SPDX-License-Identifier: GPL-2.0
/*
 * worlds: stock
 * timeout: 240
 *
 * Tests the live screens of pfc watch, pfc top and pfc ppa --top on a pseudo-terminal. When the
 * terminal hangs up, the commands must end, even if SIGHUP is ignored. SIGTERM must also end the
 * commands, which must then restore the terminal.
 */
#include "kselftest_pc.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

#define LEAVE_SCREEN	"\033[?1049l"
#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))

/* A quarter of wait_until(), so that all results are printed even if no command ends. */
#define wait_end_until(condition) do {					\
	for (int left_ = 15000; left_ && !(condition); left_--)		\
		sleep_ms(1);						\
} while (0)

struct screen {
	int master, slave;
	pid_t pid;
	char output[1 << 16];
	size_t len;
};

static const struct live_command {
	const char *name;
	/* A word that the command draws on its first screen. */
	const char *drawn;
	const char *argv[8];
} commands[] = {
	{ "watch", "/SECOND", { "pfc", "watch", NULL } },
	{ "top", "quit", { "pfc", "top", NULL } },
	{ "ppa --top", "quit", { "pfc", "ppa", "--top", NULL } },
};

static void start(struct screen *screen, const struct live_command *command)
{
	struct winsize size = { .ws_row = 24, .ws_col = 100 };

	screen->len = 0;
	screen->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (screen->master < 0 || grantpt(screen->master) || unlockpt(screen->master))
		bail("pseudo-terminal");
	screen->slave = open(ptsname(screen->master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	ioctl(screen->master, TIOCSWINSZ, &size);
	screen->pid = fork();
	if (screen->pid == 0) {
		int null = open("/dev/null", O_WRONLY);

		signal(SIGHUP, SIG_IGN);
		dup2(screen->slave, 0);
		dup2(screen->slave, 1);
		dup2(null, 2);
		execvp(command->argv[0], (char *const *)command->argv);
		_exit(127);
	}
}

static bool has_output(struct screen *screen, const char *text)
{
	struct pollfd fd = { .fd = screen->master, .events = POLLIN };
	ssize_t got;

	while (poll(&fd, 1, 0) > 0 && screen->len < sizeof(screen->output)) {
		got = read(screen->master, screen->output + screen->len,
			   sizeof(screen->output) - screen->len);
		if (got <= 0)
			break;
		screen->len += got;
	}
	return memmem(screen->output, screen->len, text, strlen(text));
}

static bool is_raw(struct screen *screen)
{
	struct termios modes;

	return tcgetattr(screen->slave, &modes) == 0 && !(modes.c_lflag & (ICANON | ECHO));
}

/* Waits until the command ends, and returns its status; -1 if the command does not end. */
static int wait_end(struct screen *screen)
{
	int status = -1;

	wait_end_until(has_output(screen, LEAVE_SCREEN) &&
		       waitpid(screen->pid, &status, WNOHANG) == screen->pid);
	if (status == -1)
		kill_child(screen->pid);
	return status;
}

static void test_hangup(const struct live_command *command)
{
	static struct screen screen;
	int status = -1;

	start(&screen, command);
	wait_until(has_output(&screen, command->drawn));
	if (!has_output(&screen, command->drawn))
		note("output: %.*s", (int)screen.len, screen.output);
	close(screen.slave);
	close(screen.master);
	wait_end_until(waitpid(screen.pid, &status, WNOHANG) == screen.pid);
	if (status == -1) {
		note("state %c", task_state(screen.pid));
		kill_child(screen.pid);
	}
	is(status, 0, "pfc %s: a hangup of the terminal ends it with SIGHUP ignored",
	   command->name);
}

static void test_signal(const struct live_command *command)
{
	static struct screen screen;
	bool was_raw;

	start(&screen, command);
	wait_until(has_output(&screen, command->drawn));
	was_raw = is_raw(&screen);
	kill(screen.pid, SIGTERM);
	is(wait_end(&screen), 0, "pfc %s: SIGTERM ends it", command->name);
	ok(was_raw && !is_raw(&screen), "pfc %s: SIGTERM restores the terminal", command->name);
	close(screen.slave);
	close(screen.master);
}

int main(void)
{
	plan(ARRAY_SIZE(commands) * 3);
	unload_modules();
	insmod_each("perfcounters perfmon ppa pfm_soft pfm_ring pfc_sched");
	write_file("/proc/sys/kernel/ppa", "1 0 0 1");
	for (size_t n = 0; n < ARRAY_SIZE(commands); n++) {
		test_hangup(&commands[n]);
		test_signal(&commands[n]);
	}
	write_file("/proc/sys/kernel/ppa", "0 0 0 1");
	unload_modules();
	return finish();
}
