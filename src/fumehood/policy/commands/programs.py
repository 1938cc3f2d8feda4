"""What is known about programs: which run code, which run other programs, where their sub-commands stand.

Data, so that adding a program is one entry. A program that is not here is judged by its words alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fumehood.policy.commands.variables import names

# Naming one of these in a rule allows whatever code it is given: that is what they are for.
INTERPRETERS = names(
    """
    python python2 python3 pypy pypy3 ipython ipython3 jupyter pytest tox nox pdb perl ruby irb rake gem bundle
    node nodejs deno bun npx tsx ts-node php lua luajit tclsh wish expect julia R Rscript octave scala kotlin
    groovy java jshell dotnet ghci runghc ocaml guile racket sbcl erl elixir iex swift make gmake cmake ninja
    meson bazel just ant mvn gradle sbt vi vim nvim view ex rvim vimdiff nano pico emacs ed red less more most man
    info gdb lldb dc m4 at batch crontab tmux screen script entr parallel run-parts start-stop-daemon systemd-run
    su runuser nsenter unshare sqlite3 mysql psql mariadb mongo mongosh redis-cli ftp sftp telnet socat nc ncat
    netcat openvpn tcpdump nmap ansible ansible-playbook terraform vagrant packer puppet chef salt ld ld.so ldd
    gcore capsh pkexec dbus-run-session logrotate service choom setarch linux32 linux64 prlimit numactl proot
    fakeroot firejail bwrap rlwrap ipython2 mpiexec mpirun srun torchrun scons snakemake nextflow osascript pwsh
    powershell cscript clisp uvx pipx poetry pdm hatch conda mamba yarn pnpm corepack cargo rustc go dpkg rpm snap
    wine mono lxc lxc-attach machinectl ctr nerdctl crictl visudo vipw sudoedit editor sensible-editor pager
    sensible-pager xterm mail mailx sendmail procmail rsh pssh aria2c tshark wireshark jjs jrunscript gimp blender
    cscope zathura slsh yelp ssh-keygen ssh-agent gpg-agent openssl pandoc convert magick exiftool ctags ip ag scp
    bsdtar cpio patch xdg-open sshfs 7z ar i386 x86_64 sg newgrp dbus-launch perf catchsegv uclampset ccache distcc
    sccache hyperfine dtach abduco direnv dotenv envdir chpst softlimit daemonize logsave lckdo gdbserver rr git-shell
    flatpak flatpak-spawn runcon nsjail rename prename file-rename lftp svn hg mosh autossh ssh-copy-id pre-commit
    qemu-x86_64 qemu-aarch64 latex pdflatex xelatex lualatex tex gnuplot swipl clojure ghc cabal mc nnn ranger joe
    tig lazygit gitk yq
    """
)
# Their programs are read: see `awk` and `sed`.
AWK = names("awk gawk mawk nawk original-awk")
SED = names("sed gsed")
# Shells whose `-c` text is read as bash or as sh; the others have grammars of their own.
READABLE_SHELLS = {"bash": True, "rbash": True, "sh": False, "dash": False, "ash": False}
SHELLS = frozenset(READABLE_SHELLS) | names("zsh ksh ksh93 mksh fish csh tcsh rzsh rksh nu xonsh elvish oksh yash")
# These take a word for a file of code, whatever its name.
RUNNING_FILES = SHELLS | names(
    """
    source . python python2 python3 pypy pypy3 ipython ipython2 ipython3 perl ruby node nodejs deno bun tsx ts-node php
    lua luajit tclsh wish expect julia Rscript octave scala kotlin groovy guile racket sbcl elixir ocaml runghc
    osascript pwsh powershell run-parts
    """
)


@dataclass(frozen=True, slots=True)
class WrapperOptions:
    """A program that runs another one: its options, and how many words of its own stand before the other's name."""

    valued: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    own_words: int = 0
    takes_assignments: bool = False
    is_text: bool = False
    """What it runs is text for a shell rather than words."""
    reads_commands: bool = False
    """Without a command it is a shell, which runs what it reads."""


def _wrapper(
    valued: str = "",
    flags: str = "",
    own_words: int = 0,
    *,
    assigns: bool = False,
    text: bool = False,
    reads_commands: bool = False,
) -> WrapperOptions:
    return WrapperOptions(names(valued), names(flags), own_words, assigns, text, reads_commands)


WRAPPERS = {
    "env": _wrapper("-u --unset", "-i --ignore-environment - -0 --null -v --debug", assigns=True),
    "nohup": _wrapper(),
    "setsid": _wrapper("", "-c --ctty -f --fork -w --wait"),
    "stdbuf": _wrapper("-i --input -o --output -e --error"),
    "nice": _wrapper("-n --adjustment"),
    "ionice": _wrapper("-c --class -n --classdata", "-t --ignore"),
    "timeout": _wrapper("-s --signal -k --kill-after", "--preserve-status --foreground -v --verbose", 1),
    "time": _wrapper("", "-p"),
    "sudo": _wrapper("-u --user -g --group", "-E -H -n -S -k", assigns=True),
    "doas": _wrapper("-u -C", "-n"),
    "chroot": _wrapper("--userspec --groups", "--skip-chdir", 1, reads_commands=True),
    "taskset": _wrapper("", "-c --cpu-list -a", 1),
    "chrt": _wrapper("-T -P -D", "-b -f -i -o -r -d -R", 1),
    "strace": _wrapper(
        "-e -s -a -S",
        "-f -c -C -t -tt -ttt -T -v -q -qq -x -xx -y -yy -r -i -k",
    ),
    "ltrace": _wrapper("-e -s -a", "-f -c -C -t -tt -T -S -r -i"),
    "valgrind": _wrapper("", "-q -v"),
    "sshpass": _wrapper("-p -f -d -P", "-e -v"),
    "setpriv": _wrapper(
        "--reuid --regid --groups --bounding-set --inh-caps",
        "--clear-groups --no-new-privs --init-groups",
    ),
    "busybox": _wrapper(),
    "toybox": _wrapper(),
    "watch": _wrapper(
        "-n --interval",
        "-d --differences -t --no-title -b --beep -e --errexit -g --chgexit -c --color",
        text=True,
    ),
    "xargs": _wrapper(
        "-n --max-args -P --max-procs -L -s --max-chars -d --delimiter -a --arg-file -I -E",
        "-0 --null -r --no-run-if-empty -t --verbose -p --interactive -x --exit",
    ),
    "flock": _wrapper("-w --timeout -E --conflict-exit-code", "-s -x -e -n -o -F --shared --exclusive --nonblock", 1),
    "ssh": _wrapper("-p -l -i", "-4 -6 -a -C -q -T -v -x -n", 1, text=True, reads_commands=True),
}


@dataclass(frozen=True, slots=True)
class SubcommandFamily:
    """A program of many sub-commands: the options that may stand before one, with and without a value."""

    valued: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    known: frozenset[str] = field(default_factory=frozenset[str])
    """All sub-commands, for a program whose configuration or plug-ins can define more."""


def _family(valued: str = "", flags: str = "", known: str = "") -> SubcommandFamily:
    return SubcommandFamily(names(valued), names(flags), names(known))


_GIT_COMMANDS = """
    add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore check-mailmap
    check-ref-format checkout checkout-index cherry cherry-pick clean clone column commit commit-graph commit-tree
    config count-objects credential describe diff diff-files diff-index diff-tree difftool fast-export fast-import
    fetch fetch-pack filter-branch fmt-merge-msg for-each-ref format-patch fsck gc get-tar-commit-id grep
    hash-object help init interpret-trailers log ls-files ls-remote ls-tree mailinfo mailsplit maintenance merge
    merge-base merge-file merge-index merge-tree mergetool mktag mktree multi-pack-index mv name-rev notes
    pack-objects pack-refs patch-id prune prune-packed pull push range-diff read-tree rebase receive-pack reflog
    remote repack replace request-pull rerere reset restore rev-list rev-parse revert rm send-email send-pack
    shortlog show show-branch show-index show-ref sparse-checkout stage stash status stripspace submodule subtree
    switch symbolic-ref tag unpack-file unpack-objects update-index update-ref update-server-info upload-archive
    upload-pack var verify-commit verify-pack verify-tag version whatchanged worktree write-tree
"""

_FAMILIES = {
    "git": _family(
        "-C -c --git-dir --work-tree --namespace --super-prefix --config-env --exec-path --list-cmds --attr-source",
        "-p --paginate -P --no-pager --bare --no-replace-objects --literal-pathspecs --no-optional-locks -v -h "
        "--version --glob-pathspecs --noglob-pathspecs --icase-pathspecs --help --html-path --no-advice",
        _GIT_COMMANDS,
    ),
    "docker": _family(
        "--config -c --context -H --host -l --log-level --tlscacert --tlscert --tlskey",
        "-D --debug --tls --tlsverify -v --version",
    ),
    "podman": _family("--connection -c --identity --log-level --root --runroot --url", "--remote -r -v --version"),
    "kubectl": _family(
        "-n --namespace --context --kubeconfig -s --server",
        "",
    ),
    "helm": _family("--kube-context --kubeconfig -n --namespace --registry-config", "--debug"),
    "npm": _family(
        "--prefix -C --registry --userconfig --loglevel -w --workspace",
        "-g --global -s --silent -q --quiet -d -dd -v --version",
    ),
    "pip": _family(
        "--python --log --proxy --retries --timeout --cache-dir",
        "-v -q --verbose --quiet --isolated -V --version --no-input --disable-pip-version-check --no-cache-dir",
    ),
    "uv": _family(
        "--directory --project --config-file --cache-dir --python",
        "-q -v --quiet --verbose --offline --no-cache -n -V",
    ),
    # The browser and the editor are programs.
    "gh": _family("-R --repo --hostname", "--version -w --web -e --editor"),
    "systemctl": _family(
        "-H --host -M --machine -t --type -n --lines -o --output --root --image",
        "--user --system --no-pager -q --quiet --now",
    ),
    "apt-get": _family("-o -c -t", "-y -q -qq -s -f --yes --quiet --assume-yes --no-install-recommends"),
    "apt": _family("-o -c -t", "-y -q -qq -s -f --yes --quiet --assume-yes --no-install-recommends"),
    "brew": _family("", "-v -q -d --verbose --quiet --debug"),
    "aws": _family(
        "--profile --region --output --endpoint-url --query",
        "--debug --no-cli-pager --no-verify-ssl --no-paginate",
    ),
    "gcloud": _family("--project --account --configuration --format --flags-file", "-q --quiet"),
}

FAMILIES = {**_FAMILIES, "pip3": _FAMILIES["pip"]}

# Sub-commands that run a command somewhere else.
SUBCOMMAND_WRAPPERS = {
    "docker exec": _wrapper(
        "-e --env -w --workdir -u --user --env-file --detach-keys",
        "-i -t -d --interactive --tty --privileged --detach",
        1,
    ),
    "podman exec": _wrapper(
        "-e --env -w --workdir -u --user --env-file --detach-keys",
        "-i -t -d --interactive --tty --privileged --detach",
        1,
    ),
    "kubectl exec": _wrapper("-c --container -n --namespace", "-i -t --stdin --tty -q --quiet", 1),
}
