#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck disable=SC2010,SC2015,SC2016,SC2086,SC2094,SC2154,SC2231,SC2317,SC2329,SC3043
# timeout: 1500
# worlds: stock
# guest: deb
#
# Installs the packages with apt, as a user does, on a Debian with its own systemd and the stock
# kernel, without the sources. Then the test runs the commands of the README's five tasks, signs the
# modules, and purges the packages.

# shellcheck source=tests/kselftest/lib/kselftest_pc.sh
. /tests/kselftest_pc.sh
# shellcheck source=tests/kselftest/lib/pmcd.sh
. /tests/pmcd.sh

release=$(uname -r)
# Directory with example programs, and with lists of the files and groups that existed before the
# installation. tools/deb/disk.sh has made its contents before the guest was booted.
examples=/examples
has_patterns() { # FILE PATTERN...
	local file=$1
	shift
	for pattern; do
		grep -qE -e "$pattern" "$file" || { echo "no '$pattern' in:"; head -n 15 "$file"; return 1; }
	done
}
is_equal() { [ "$1" = "$2" ] || { echo "$1, not $2"; return 1; }; }

# man-db would index all manual pages at each installation and removal of a package.
rm -f /var/lib/man-db/auto-update

plan 45
test_packaged() {
	is_equal "$(cat /proc/1/comm)" systemd && [ ! -e /modules ] && ! pfc --version | grep -vx "pfc $(dpkg-query -W -f '${Version}' perfcounters)" &&
		dpkg -S "$(command -v pfc)"
}
check "install packages: pfc is from the packages and has their version, no build files exist" test_packaged

test_service() {
	is_equal "$(systemctl is-enabled perfcounters)" enabled && systemctl start perfcounters && systemctl is-active perfcounters || { systemctl status perfcounters; return 1; }
	. /etc/default/perfcounters
	for m in $PROVIDERS; do [ -d "/sys/module/pfc_$m" ] || { echo "no pfc_$m"; return 1; }; done
	is_equal "$(modinfo -F filename pfc_sched)" "/lib/modules/$release/updates/perfcounters/pfc_sched.ko"
}
check "install service: loads the providers named in /etc/default/perfcounters" test_service
# has_devices [DEVICE MODE GROUP]...: succeeds if the devices of the project's modules are exactly
# these, with these modes and groups.
has_devices() { is_equal "$(cd /dev && find perf* ppa -maxdepth 0 2>/dev/null | sort | xargs -r stat -c '%n %a %G' | xargs)" "$*"; }
has_counters_only() { has_devices perfcounters 440 perfcounters perfcounters_names 440 perfcounters; }
test_default() { within 30 has_counters_only && ! lsmod | grep -E '^(perfmon|perftrace|ppa|pfm_)'; }
check "install service: by default loads the counter pages and providers only, with the group perfcounters" test_default
# The service loads the modules that /etc/default/perfcounters names, and no others.
# With fewer providers, each of the following starts of the service is shorter.
sed -i 's/^PROVIDERS=.*/PROVIDERS="sched mm"/' /etc/default/perfcounters
test_selection() { # MODULES DEVICE...
	systemctl reset-failed perfcounters
	sed -i "s/^MODULES=.*/MODULES=\"$1\"/" /etc/default/perfcounters
	shift
	systemctl restart perfcounters && within 30 has_devices perfcounters 440 perfcounters perfcounters_names 440 perfcounters "$@"
}
check "install service: loads all modules that are named" test_selection "perfmon ppa perftrace" perfmon 660 perfcounters perftrace 666 root ppa 444 root
check "install service: loads perfmon alone if no other module is named" test_selection perfmon perfmon 660 perfcounters
check "install service: loads ppa alone if no other module is named" test_selection ppa ppa 444 root
check "install service: loads perftrace alone if no other module is named" test_selection perftrace perftrace 666 root
check "install service: loads none of these modules if none is named" test_selection ""
run_as_nobody() { setpriv --reuid 65534 --regid 65534 "$@"; }
test_member() { run_as_nobody --groups perfcounters pfc list >list && has_patterns list sched/context_switches; }
check "install pfc list: works for a member of the group" test_member
test_other_user() { ! run_as_nobody --clear-groups pfc list >list 2>&1 && has_patterns list "/dev/perfcounters"; }
check "install pfc list: fails for other users and names the device" test_other_user

test_watch() { pfc watch --count 3 </dev/null >watched && has_patterns watched "generation" "sched/"; }
check "install pfc watch: prints counters" test_watch
test_stat() { pfc stat -o counted ls /usr >/dev/null && has_patterns counted "context-switches" "page-faults"; }
check "install pfc stat: loads perfmon, and counts a command" test_stat
# Records samples of a command that has symbols.
test_record() { pfc record -o samples -- sh -c 'i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done' && pfc report -i samples >report && has_patterns report "[0-9]%.*sh"; }
check "install pfc record, pfc report: show symbols of a command" test_record
test_ppa() { pfc ppa on && pfc ppa --cpus >accounts && has_patterns accounts "[0-9]" && pfc ppa off; }
check "install pfc ppa: loads ppa, and prints the times of CPUs" test_ppa
test_trace() { pfc trace start requests -e 'requests:*' -s 1M -o requests.ctf -- $examples/requests 500 && babeltrace2 requests.ctf >events && is_equal "$(grep -c requests: events)" 1001 &&
	is_equal "$(stat -c '%a %G' /dev/perftrace)" "666 root"; }
check "install libperftrace-dev: pfc trace loads perftrace, and records a program compiled with it" test_trace
test_faults() { $examples/page_faults >counted && cat counted && [ "$(sed 's/ .*//' counted)" -ge 100 ]; }
check "install libperfmon-dev: a program compiled with it counts page faults" test_faults
test_reader() { $examples/reader >values && has_patterns values "^sched/context_switches [0-9]+"; }
check "install header: a program compiled with it reads counters" test_reader
test_doctor() {
	local rc=0
	pfc doctor >found || rc=$?
	cat found
	[ $rc = 0 ] && [ -s found ] && ! grep -q '^problem' found
}
check "install pfc doctor: finds no problem" test_doctor

# If /etc/default/perfcounters names a provider that does not exist, the service reports this and
# loads the other providers.
test_unknown_provider() {
	sed -i.was 's/^PROVIDERS=.*/PROVIDERS="sched nonsense"/' /etc/default/perfcounters
	systemctl restart perfcounters
	mv /etc/default/perfcounters.was /etc/default/perfcounters
	systemctl status perfcounters >status
	has_patterns status "Active: active" "status=3" "no provider nonsense; /etc/default/perfcounters" && [ -d /sys/module/pfc_sched ] &&
		systemctl stop perfcounters && [ ! -d /sys/module/perfcounters ]
}
check "install service: reports an unknown provider, loads and unloads the others" test_unknown_provider
# Tests module parameters in /etc/modprobe.d/perfcounters.conf: the service starts if the value is
# valid, and fails to start if the value is invalid.
test_options() {
	sed -i.was 's/^#options/options/' /etc/modprobe.d/perfcounters.conf
	systemctl restart perfcounters
	local rc=$?
	sed -i 's/pages_per_chunk=4/pages_per_chunk=99/' /etc/modprobe.d/perfcounters.conf
	systemctl restart perfcounters && rc=1
	mv /etc/modprobe.d/perfcounters.conf.was /etc/modprobe.d/perfcounters.conf
	dmesg | tail -n 20 >words
	systemctl restart perfcounters && has_patterns words "pages_per_chunk=99: must be 1 to" && return $rc
}
check "install /etc/modprobe.d: options are used, an invalid one fails the start" test_options
# Tests a driver that does not belong to the packages (pfc_mm under another name). `reset-failed` is
# needed because systemd limits how often a service can start.
test_foreign_driver() {
	systemctl reset-failed perfcounters
	sed 's/pfc_mm/oth_mm/g' /lib/modules/$release/updates/perfcounters/pfc_mm.ko >oth_mm.ko
	modprobe -r pfc_mm && insmod ./oth_mm.ko && systemctl stop perfcounters && [ -d /sys/module/oth_mm ] && ! lsmod | grep -E '^(pf[cm]_|perfmon|ppa)' &&
		journalctl -u perfcounters >journal && has_patterns journal "others count with it: oth_mm" && rmmod oth_mm perfcounters && systemctl start perfcounters
}
check "install service: the stop leaves drivers of others loaded, and logs them" test_foreign_driver
# Gives the installed perfcounters.ko another build ID, as an upgrade does, while this shell has a
# device open.
test_other_build() {
	local ko=/lib/modules/$release/updates/perfcounters/perfcounters.ko at rc=0
	systemctl reset-failed perfcounters
	# The build ID follows the header of its ELF note, which has the type 3 and the name GNU.
	at=$(LC_ALL=C grep -obaP '\x03\x00\x00\x00GNU\x00' $ko | head -n 1 | cut -d: -f1)
	[ -n "$at" ] && cp $ko perfcounters.was || return 1
	printf WXYZ | dd of=$ko bs=1 seek=$((at + 8)) conv=notrunc status=none
	exec 9</dev/perfcounters
	! systemctl restart perfcounters || rc=1
	journalctl -u perfcounters >journal
	has_patterns journal "an older perfcounters.ko is still loaded.*processes with its devices:.* \([0-9]+\)" && [ ! -d /sys/module/pfc_sched ] || rc=1
	exec 9<&-
	systemctl restart perfcounters && [ -d /sys/module/pfc_sched ] || rc=1
	cp perfcounters.was $ko
	return $rc
}
check "install service: loads no module into an older perfcounters.ko that is in use, and names the processes" test_other_build
# Starts a program with markers ($examples/requests) before perfcounters.ko is loaded, and ends the
# program after perfcounters.ko is unloaded.
test_program_before_service() {
	local program rc=0
	systemctl reset-failed perfcounters
	systemctl stop perfcounters && [ ! -d /sys/module/perfcounters ] || return 1
	$examples/requests 1000000 & program=$!
	sleep 1
	systemctl start perfcounters && pfc trace start late -e 'requests:*' -s 1M -o late.ctf -- sleep 2 && babeltrace2 late.ctf >events &&
		[ "$(grep -c requests: events)" -gt 1 ] || rc=1
	systemctl stop perfcounters && [ ! -d /sys/module/perfcounters ] && kill -0 $program || rc=1
	kill $program
	systemctl start perfcounters && return $rc
}
check "install service: a program that started before is traced, and does not pin the module" test_program_before_service
# loaded_since: prints a number that changes when perfcounters.ko is loaded again.
loaded_since() { stat -c %i /sys/module/perfcounters; }
# Installs the package perfcounters again, which is an upgrade without a change of the modules.
test_upgrade_of_tools() {
	local before
	before=$(loaded_since)
	dpkg -i /packages/perfcounters_*.deb && is_equal "$(systemctl is-active perfcounters)" active && is_equal "$(loaded_since)" "$before"
}
check "install perfcounters again: an upgrade without modules leaves the modules loaded" test_upgrade_of_tools
# systemd units that are started at the same time while no module is loaded, as at boot.
units="perfcounters-accounting perfcounters-openmetrics"
# http_get PORT PATH: stores the response of a server on this guest in the file `answer`.
http_get() { bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0"; printf "GET %s HTTP/1.0\r\n\r\n" "$1" >&3; cat <&3' "$1" "$2" >answer 2>/dev/null; }
has_task_metrics() { http_get 9464 /metrics && has_patterns answer '^pfc_task_.*comm=' >/dev/null; }
are_active() { is_equal "$(systemctl is-active perfcounters $units | xargs)" "active active active"; }
test_fleet_units() {
	systemctl reset-failed perfcounters
	systemctl stop perfcounters
	for unit in $units; do cp /usr/share/perfcounters/fleet/$unit.service /etc/systemd/system; done
	systemctl daemon-reload && systemctl start $units && are_active && within 30 has_task_metrics
	local rc=$?
	[ $rc = 0 ] || { tail -n 5 answer; systemctl status $units; }
	return $rc
}
check "install fleet units: start after the service and export tasks" test_fleet_units
# Restarts the service, as an upgrade of the modules does.
test_units_restart() {
	local before
	before=$(loaded_since)
	systemctl restart perfcounters && within 30 are_active && [ "$(loaded_since)" != "$before" ] && within 30 has_task_metrics
}
check "install fleet units: a restart of the service loads the modules anew and restarts the units" test_units_restart
# Starts the enabled units while the modules are not installed. Then installs the modules, as the
# first installation of modules after the boot does.
test_late_modules() {
	local dir=/lib/modules/$release/updates/perfcounters rc=0
	systemctl enable $units && systemctl stop $units perfcounters && mv $dir ./late || return 1
	! systemctl start perfcounters && systemctl start $units && [ ! -d /sys/module/perfcounters ] || rc=1
	mv ./late $dir
	systemctl reset-failed
	/usr/libexec/perfcounters/modules installed
	within 30 are_active && within 30 has_task_metrics || rc=1
	# The test removes the units later, and systemd then reads the links again.
	systemctl --no-reload disable $units && return $rc
}
check "install fleet units: start accounting and export tasks when modules are installed later" test_late_modules
has_metrics() { http_get 9464 /metrics && has_patterns answer '^perfcounters_sched_'; }
# Turns accounting on after the exporter has started without /dev/ppa.
test_late_accounting() {
	systemctl stop $units && modprobe -r ppa && systemctl start perfcounters-openmetrics && within 30 has_metrics && [ ! -e /dev/ppa ] && ! has_task_metrics &&
		pfc ppa on && within 30 has_task_metrics
	local rc=$?
	pfc ppa off
	return $rc
}
check "install fleet units: export tasks when /dev/ppa appears after the start" test_late_accounting
systemctl stop $units
for unit in $units; do rm /etc/systemd/system/$unit.service; done
systemctl daemon-reload

test_manual() {
	man -w pfc pfc-watch libperfmon pfm_create_context perftrace && MANWIDTH=80 man pfc >page && has_patterns page "NAME" "pfc-watch|watch"
}
check "install manual pages: found and shown by man" test_manual
test_bash_completion() {
	bash -c '. /usr/share/bash-completion/bash_completion
		_comp_load pfc 2>/dev/null || __load_completion pfc
		COMP_WORDS=(pfc wa) COMP_CWORD=1 COMP_LINE="pfc wa" COMP_POINT=6
		$(complete -p pfc | sed -E "s/.*-F ([^ ]+).*/\1/") pfc wa pfc
		echo "${COMPREPLY[@]}"' >words && has_patterns words "watch"
}
check "install bash: completes a subcommand of pfc" test_bash_completion
test_zsh_completion() { zsh -fc 'autoload -U compinit; compinit -u -d /tmp/zcompdump; print $_comps[pfc]' >words && has_patterns words '^_pfc$'; }
check "install zsh: has a completion for pfc" test_zsh_completion
test_fish_completion() { fish -c 'complete -C "pfc wa"' >words && has_patterns words "^watch"; }
check "install fish: completes a subcommand of pfc" test_fish_completion

# Tests Performance Co-Pilot with the agent mmv only.
test_pcp() {
	chown pcp:pcp .
	start_pmcd
	pfc export --mmv pc 'sched/*' 2>export.err &
	mmv=$!
	within 90 pminfo mmv.pc.all.sched.context_switches && pmval -s 2 -t 1sec -r mmv.pc.all.sched.context_switches >values && cat values && has_patterns values '^[ 0-9:.]*[1-9][0-9]* *$'
	local rc=$?
	kill $mmv $pmcd
	wait $mmv $pmcd
	return $rc
}
check "install pfc export --mmv: pmval shows counters" test_pcp
# promtool reads the older text format of metrics, and misses the help texts of the new one. It must
# not find any other fault.
test_promtool() {
	pfc export --openmetrics sched >metrics || return 1
	promtool check metrics <metrics >lint 2>&1
	grep -v ' no help text$' lint >others
	cat others
	[ -s lint ] && ! [ -s others ]
}
check "install pfc export --openmetrics: promtool can read it" test_promtool

systemctl stop perfcounters
check "install service: the stop unloads all modules" sh -c '! lsmod | grep -E "^(perfcounters|perfmon|perftrace|ppa|pfc_|pfm_)"'

# Signs the modules as for Secure Boot, with a new key and the kernel's own signing tool.
sign=/usr/libexec/perfcounters/sign
test_new_key() { $sign --new /tmp/mok >said.key && has_patterns said.key "mokutil --import /tmp/mok/mok.der" && is_equal "$(stat -c %a /tmp/mok/mok.key)" 600; }
check "install sign --new: makes a key and names the next step" test_new_key
test_signed() {
	$sign /tmp/mok/mok.key /tmp/mok/mok.der || return 1
	for ko in /lib/modules/$release/updates/perfcounters/*.ko; do
		modinfo -F signer "$ko" | grep -q '^perfcounters modules of' || { echo "$ko is not signed"; return 1; }
	done
	systemctl start perfcounters
}
check "install sign: all modules are signed with the key and load" test_signed
cp /lib/modules/$release/updates/perfcounters/perfcounters.ko signed.ko

# Checks that a purge leaves nothing behind.
ours=$(cd /packages && for f in *.deb; do echo "${f%%_*}"; done)
test_purge() { DEBIAN_FRONTEND=noninteractive apt-get purge -y $ours; }
check "install apt-get purge: succeeds" test_purge
test_unloaded() { ! lsmod | grep -E '^(perfcounters|perfmon|perftrace|ppa|pfc_|pfm_)' && ! ls /dev/perf* /dev/ppa 2>/dev/null && ! systemctl status perfcounters; }
check "install purged: modules, devices and the service are removed" test_unloaded
# Compares the files of the system with a list that was made before the packages were installed.
# Directories in which a running Debian writes are left out. In /var/lib/systemd, where apt's helper
# for services records the installed services, only files about these packages are compared.
test_no_files_left() {
	find / -xdev \( -path /proc -o -path /dev -o -path /sys -o -path /run -o -path /tmp -o -path /guest -o -path /tests -o -path /orders -o -path /packages -o -path /examples \) -prune -o -print |
		LC_ALL=C sort >files
	LC_ALL=C comm -13 $examples/before.files files |
		awk '!/^\/var\/lib\/systemd(\/|$)/ || /perf|pf[cm]/' |
		grep -vE -e '^/var/(log|cache|tmp)/' -e '^/var/lib/(dpkg|apt|private|pcp|prometheus|dbus)(/|$)' \
			-e '^/etc/(mtab|default/locale|vconsole\.conf|systemd/system/tests\..*|(group|gshadow|passwd|shadow)-)$' \
			-e '^/(etc|var)/\.updated$' -e '^/lost\+found$' -e '^/root/' >new
	LC_ALL=C comm -23 $examples/before.files files | grep -E 'perf|pf[cm]|lib/modules|etc/(group|modprobe|udev)' >gone
	cat new gone
	[ ! -s new ] && [ ! -s gone ]
}
check "install purged: no file is left, no earlier file is missing" test_no_files_left
test_lists_restored() {
	diff $examples/before.group /etc/group && diff $examples/before.dep /lib/modules/$release/modules.dep && dpkg-query -W >now &&
		! grep -E 'perf(counters|mon|trace)' now && ! ls /var/lib/dpkg/info | grep -E 'perf(counters|mon|trace)'
}
check "install purged: group, modules.dep and dpkg are as before" test_lists_restored

# Installs the packages again on a running machine, where apt may install the modules after the
# service.
test_install_again() {
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends /packages/*.deb && is_equal "$(systemctl is-active perfcounters)" active &&
		pfc list >list && has_patterns list sched/context_switches
}
check "install again on a running machine: the service is active, pfc works" test_install_again

# Only a reboot undoes the setting of sig_enforce, so no later test loads modules.
#
# Installs unsigned modules while the kernel loads only signed modules.
test_unsigned_upgrade() {
	local before
	before=$(loaded_since)
	echo 1 >/sys/module/module/parameters/sig_enforce
	dpkg -i /packages/perfcounters-modules-*.deb >words 2>&1 && has_patterns words "perfcounters.ko is not signed, and this kernel loads only signed modules" &&
		is_equal "$(systemctl is-active perfcounters)" active && is_equal "$(loaded_since)" "$before"
}
check "install sig_enforce: an upgrade to unsigned modules says so, and leaves the old modules loaded" test_unsigned_upgrade
# Purges the packages while a process has a device of the project open.
test_purge_while_open() {
	exec 9</dev/perfcounters
	test_purge >said 2>&1
	local rc=$?
	cat said
	has_patterns said "perfcounters.ko is in use and stays" && is_equal "$(stat -c '%a %u %g' /dev/perfcounters)" "400 0 0" && ! getent group perfcounters || rc=1
	exec 9<&-
	rmmod perfcounters && [ ! -e /dev/perfcounters ] && return $rc
}
check "install purged with a device open: only root may open it, the module unloads after close" test_purge_while_open
test_unsigned_refused() {
	! insmod ./signed.ko 2>words
	cat words
	dmesg | grep -iE 'loading of module with unavailable key is rejected' || { dmesg | tail -n 5; has_patterns words "rejected|not available"; }
}
check "install sig_enforce: a module with an unknown key is refused" test_unsigned_refused
exit $failed
