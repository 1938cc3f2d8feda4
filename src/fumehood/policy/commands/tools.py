"""What is known to be harmless: for each tool the options with which it starts nothing and writes only where it may.

One line for each. An option that is not in it is refused, unless a rule of the policy spells it. A tool without a line
is judged by the rules alone: who allows it answers for what it does.

    n lines         -n and --lines, without a value          k= key=     with a value: -k 1, -k1, --key=1, --key 1
    color?          --color or --color=x                     o> out>     with the name of a file that is written
    format:         --format=x alone                         .           options stand alone: neither -ab nor -n5
    f~              with a plain path: not hidden, no colon   #           -5
    *               any option is harmless                   !m          one of those with this mark must be given
    >all >last >first >second    operands that are written   <1          at most one operand
    >folders >prefix >unpacked   the same: folders, the beginning of names, files whose ending goes away
    >kept >moved                 the same, and all of them or all but the last keep their content
    >gone                        operands that are taken away
    +               operands begin with +                    !: !::      operands with a colon, or two, start a program
    -               operands that begin with + are options
    ^s=             only by a rule that spells it: `date -s`  @           an operand such as @file holds more options
    =               operands are plain names, no paths       --          what follows -- goes to another program
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_OPEN = """
    arch base32 base64 basename cat cksum cmp column comm cut df dirname du echo egrep expand expr factor false
    fgrep fmt fold free getent grep groups head hexdump id join jq kill locale ls lscpu md5sum nl nproc numfmt
    objdump od paste printenv printf ps pwd readelf readlink realpath rev seq sha1sum sha224sum sha256sum
    sha384sum sha512sum size sleep stat strings sum tac tail test [ tr true tty uname unexpand uptime wc which whoami
    yes
"""
_WALK = """
    # oneline graph stat? name-only name-status format: pretty? since= until= after= before= author= committer= n= p u s
    patch no-patch all decorate? no-decorate abbrev-commit abbrev? first-parent merges no-merges follow grep= i E F S=
    G= reverse date= cached staged quiet exit-code color? no-color word-diff? w b ignore-all-space ignore-space-change
    ignore-blank-lines U? unified? M? C? diff-filter= numstat shortstat dirstat? summary raw full-index binary check
    no-ext-diff no-textconv cc m left-right cherry-pick cherry-mark max-count= skip= topo-order date-order tags?
    branches? remotes? no-index relative? minimal patience histogram z no-renames find-renames? source
    simplify-by-decoration ancestry-path all-match invert-grep merge-base no-walk?
    no-prefix src-prefix= dst-prefix= inter-hunk-context= function-context W text a
"""
_PIP = "q v quiet verbose no-color no-input disable-pip-version-check isolated"
_KUBECTL = (
    "n= namespace= A all-namespaces l= selector= o= output= w watch context= c= container= tail= f follow "
    "since= p previous show-labels sort-by= no-headers field-selector= wide "
)
_PODMAN = "a q f= all quiet filter= format= latest no-trunc"
_BREW = "v q verbose quiet formula cask formulae casks"
_ZIPPERS = (
    "d k f v c l t q n # decompress uncompress keep force verbose stdout to-stdout list test quiet best fast >unpacked "
)
_LINES = {
    **dict.fromkeys(_OPEN.split(), "*"),
    **dict.fromkeys(("rm", "rmdir"), "* >gone"),
    "apt": "q quiet",
    "apt list": "installed upgradable a",
    "apt show": "a",
    "apt search": "n",
    "apt-get": "q quiet s simulate dry-run",
    "apt-get update": "q quiet",
    "bunzip2": _ZIPPERS,
    "bzip2": _ZIPPERS,
    "chgrp": "* >kept",
    "chmod": "* >kept",
    "chown": "* >kept",
    "cp": (
        "a r R f i n p u v L P d T x t> archive recursive force no-clobber preserve? update? verbose parents "
        "no-target-directory target-directory> dereference no-dereference no-preserve= >last"
    ),
    "curl": (
        "s S f L I i v k G # X= H= d= u= A= e= m= w= F= b= o> c> D> silent show-error fail location head "
        "include verbose insecure get request= header= data= data-raw= data-binary= data-urlencode= json= "
        "user= user-agent= referer= max-time= connect-timeout= retry= retry-delay= write-out= form= cookie= "
        "output> cookie-jar> dump-header> compressed create-dirs fail-with-body http1.1 http2 "
        "no-progress-meter max-redirs= url="
    ),
    "csplit": "k n= s z f> prefix> keep-files digits= quiet silent elide-empty-files suppress-matched",
    "date": "^s= ^set= u R I? d= r= utc universal rfc-email iso-8601? rfc-3339= date= reference= debug +",
    "dd": "",
    "docker": "D debug l= log-level= v version",
    **dict.fromkeys(("docker save", "podman save"), "o> output>"),
    **dict.fromkeys(("docker export", "podman export"), "o> output>"),
    "docker compose ps": "a all q quiet format= services filter= status= no-trunc orphans",
    "docker compose logs": "f follow n= tail= t timestamps since= until= no-color no-log-prefix",
    "docker compose images": "q quiet format=",
    "docker compose ls": "a all q quiet format= filter=",
    "docker compose top": "",
    "diff": (
        "u r q N w b i B y a E Z c s t U= W= x= X= I= color? unified? recursive brief new-file ignore-case "
        "ignore-all-space ignore-space-change ignore-blank-lines side-by-side suppress-common-lines width= "
        "exclude= strip-trailing-cr text minimal label= no-dereference report-identical-files"
    ),
    "diff3": "A e E m T x X 3 a L= i show-all merge text label= easy-only overlap-only initial-tab strip-trailing-cr",
    "fd": (
        "H I t= e= E= d= a g i s L p 0 hidden no-ignore type= extension= max-depth= exclude= absolute-path "
        "glob ignore-case case-sensitive follow full-path print0 color= size= changed-within="
    ),
    "aws": "profile= region= output= query= debug no-cli-pager no-paginate",
    "brew": "v q d verbose quiet debug",
    **dict.fromkeys(("brew list", "brew ls"), _BREW + " 1 l r t versions multiple pinned full-name ="),
    "brew info": _BREW + " json? installed analytics =",
    "brew desc": _BREW + " s search n name d description =",
    "brew deps": _BREW + " n 1 tree installed topological direct union full-name include-build include-test =",
    "brew uses": _BREW + " installed recursive include-build include-test missing =",
    "brew outdated": _BREW + " json? greedy =",
    "brew search": _BREW + " desc =",
    "gcloud": "project= account= format= q quiet",
    "gh": "R= repo= version",
    "gh repo clone": "u= upstream-remote-name= !:: >second <2 --",
    "gh gist clone": "!:: >second <2 --",
    "helm": "n= namespace= debug",
    # A plugin fetches what begins with a scheme of its own.
    **dict.fromkeys(
        (f"helm show {part}" for part in ("all", "chart", "crds", "readme", "values")), "version= devel debug !://"
    ),
    "podman": "log-level= v version",
    "podman ps": _PODMAN + " a l s n= last= size noheading external pod p sort=",
    "podman images": _PODMAN + " n noheading digests sort=",
    "podman logs": "f t n l follow timestamps names latest since= until= tail= color",
    "podman inspect": _PODMAN + " l s size t= type=",
    "podman info": _PODMAN,
    "podman version": _PODMAN,
    "podman stats": _PODMAN + " l no-stream no-reset i= interval=",
    "podman events": _PODMAN + " since= until= stream:",
    "podman diff": _PODMAN + " l",
    "podman history": _PODMAN + " H human",
    "podman port": "a l all latest",
    "podman search": _PODMAN + " limit= list-tags",
    "podman rm": "a f i l v t= all force ignore latest volumes time= filter=",
    "podman rmi": "a f i all force ignore",
    "podman stop": "a i l t= all ignore latest time= filter=",
    "podman kill": "a l s= all latest signal=",
    **dict.fromkeys(("podman pause", "podman unpause"), "a l all latest"),
    "podman wait": "i= l interval= latest condition=",
    "podman system df": _PODMAN + " v verbose",
    **dict.fromkeys((f"podman {kind} prune" for kind in ("system", "volume", "network")), "a f all force filter="),
    **dict.fromkeys(
        (f"podman {kind} {shown}" for kind in ("volume", "network") for shown in ("ls", "inspect")), _PODMAN
    ),
    **dict.fromkeys((f"podman {kind} rm" for kind in ("volume", "network")), "a f all force"),
    "systemctl": "t= type= n= lines= o= output= user system no-pager q quiet now",
    "uv": "q v n V quiet verbose offline no-cache",
    "uv version": "q v n quiet verbose offline no-cache short output-format= ^bump= <0",
    "file": "b i L h k 0 brief mime mime-type mime-encoding dereference no-dereference",
    "git": "P no-pager no-optional-locks literal-pathspecs version v C=",
    "git add": "A u n f v N all update dry-run force verbose intent-to-add chmod= ignore-errors",
    **dict.fromkeys(
        (f"git apply --{shown}" for shown in ("stat", "numstat", "summary", "check")),
        "stat numstat summary check p= v verbose R reverse cached index 3 z",
    ),
    "git archive": "l v list verbose format: prefix: o> output> worktree-attributes #",
    "git blame": "L= w M C e l s p b c date= porcelain line-porcelain since= show-email",
    "git branch": (
        "a r v l d D m M c f q t i u= all remotes verbose list delete move copy force show-current merged= "
        "no-merged= contains= no-contains= sort= format= track? no-track quiet set-upstream-to= "
        "unset-upstream column? points-at= ignore-case no-color color?"
    ),
    "git cat-file": "p t s e batch? batch-check?",
    "git checkout": (
        "b= B= q f t l m quiet force track? no-track detach orphan= theirs ours merge progress no-progress"
    ),
    "git clean": "n f d x X q dry-run force quiet e= exclude=",
    "git clone": (
        "q v n b= quiet verbose depth= single-branch branch= no-checkout no-tags shallow-since= !:: >second <2"
    ),
    "git commit": (
        "a q s n v m=! F=! C=! t~ all quiet signoff no-verify amend no-edit! message=! file=! reuse-message=! "
        "fixup~! allow-empty allow-empty-message author= date= dry-run! short! porcelain! no-gpg-sign only "
        "include no-post-rewrite reset-author trailer="
    ),
    "git config": "get l list get-all get-regexp show-origin show-scope name-only global local type= default= z <1",
    "git describe": "tags always dirty? long abbrev? match= all contains exact-match first-parent",
    "git diff": _WALK,
    "git fetch": "a p q v n t all prune quiet verbose no-tags tags depth= unshallow dry-run jobs= !::",
    "git format-patch": (
        "# o> output-directory> stdout n numbered N no-numbered s signoff k keep-subject start-number= v= "
        "reroll-count= subject-prefix= rfc root stat? no-stat M? C? U? no-signature cover-letter zero-commit "
        "full-index binary q quiet"
    ),
    "git grep": (
        "n i l c w v E F P o e= A= B= C= h H L r line-number ignore-case files-with-matches name-only count "
        "word-regexp cached untracked heading break max-depth= and or not all-match"
    ),
    "git init": "q b= quiet initial-branch= >all",
    "git log": _WALK + " L=",
    "git ls-files": (
        "c d m o i s u z t k cached deleted modified others ignored stage unmerged exclude-standard x= "
        "exclude= error-unmatch full-name"
    ),
    "git ls-tree": "r d t l z name-only name-status full-name full-tree long abbrev?",
    "git merge-base": "a all is-ancestor octopus fork-point independent",
    "git ls-remote": "h t q heads tags refs symref exit-code quiet get-url !::",
    "git merge": "q v m= no-ff ff-only ff no-edit abort squash no-commit quiet message=",
    "git mv": "f k n v force dry-run verbose >all",
    "git pull": "q v p t rebase no-rebase ff-only quiet verbose prune tags depth= autostash no-edit !::",
    "git push": (
        "u f n q v d set-upstream force force-with-lease? tags all delete dry-run follow-tags quiet verbose !::"
    ),
    "git reflog": _WALK + " L=",
    "git remote": "v verbose <0",
    "git remote get-url": "push all <1",
    "git reset": "q hard soft mixed merge keep quiet",
    "git restore": "q s= S W source= staged worktree quiet ours theirs merge",
    "git rev-list": _WALK + " count objects no-object-names",
    "git rev-parse": (
        "show-toplevel abbrev-ref? short? verify q quiet git-dir is-inside-work-tree show-prefix symbolic "
        "is-bare-repository show-cdup symbolic-full-name absolute-git-dir all branches? tags?"
    ),
    "git rm": "r f n q cached dry-run force quiet ignore-unmatch",
    "git shortlog": "s n e c summary numbered email group= format= since= until= all no-merges",
    "git show": _WALK + " L=",
    "git show-ref": "heads tags d s hash? verify q head abbrev?",
    "git stash": "m= u a k q message= include-untracked all keep-index quiet index staged stat #",
    "git status": (
        "s b v u? z short branch verbose porcelain? long untracked-files? ignored? ahead-behind "
        "no-ahead-behind renames no-renames find-renames? column? show-stash"
    ),
    "git submodule status": "cached recursive",
    "git switch": (
        "c= C= q d f t m create= force-create= quiet detach force track? no-track discard-changes guess orphan="
    ),
    "git tag": (
        "l n? d f m= F= list delete force message= sort= format= contains= merged= points-at= column? i ignore-case"
    ),
    "git worktree": "v porcelain b= d f detach force >all",
    "gunzip": _ZIPPERS,
    "gzip": _ZIPPERS,
    "hostname": "f i I s d fqdn short ip-address all-ip-addresses domain <0",
    "iconv": "f= t= c s l o> from-code= to-code= list output> silent verbose",
    "install": "d D v p C m= o= g= t> directory verbose mode= owner= group= target-directory> >all",
    "kubectl": "n= namespace= context=",
    "kubectl get": _KUBECTL,
    "kubectl describe": _KUBECTL,
    "kubectl logs": _KUBECTL,
    "kubectl version": _KUBECTL,
    "ln": "s f n v T r t> symbolic force no-dereference verbose relative no-target-directory >all",
    "mkdir": "p v m= parents verbose mode= >folders",
    "mv": "f i n u v T t> force interactive no-clobber update? verbose no-target-directory target-directory> >moved",
    "nm": (
        "a A B C D g h l n o p P r s S u v V W t= f= X= demangle? no-demangle debug-syms print-file-name extern-only "
        "undefined-only defined-only dynamic numeric-sort no-sort size-sort reverse-sort portability print-size "
        "print-armap radix= format= line-numbers special-syms synthetic without-symbol-versions no-weak version help @"
    ),
    "npm": "s silent q quiet v version",
    "npm ls": "a l g all long global json parseable depth= omit= prod dev",
    "npm outdated": "g json long parseable all",
    "npm view": "json",
    "npm audit": "json omit= audit-level= production <0",
    "npm version": "json <0",
    "pip": _PIP + " V version",
    "pip list": _PIP + " o u e l outdated uptodate editable local user format= not-required exclude-editable exclude=",
    "pip show": _PIP + " f files",
    "pip freeze": _PIP + " l local user all exclude= exclude-editable",
    "pip check": _PIP,
    "pip index": _PIP,
    "rg": (
        "n i l c w v F o U S s H N I L x 0 # e= g= t= T= A= B= C= m= r= j= M= u uu hidden no-ignore files "
        "type= glob= type-not= max-count= json stats color= line-number no-line-number ignore-case "
        "files-with-matches count fixed-strings context= no-heading heading with-filename no-filename sort= "
        "multiline only-matching replace= word-regexp regexp= pcre2 files-without-match after-context= "
        "before-context= invert-match iglob= max-depth= smart-case case-sensitive vimgrep"
    ),
    "rsync": (
        "a v r z n u P h H l t p g o c x q i archive verbose recursive compress dry-run update delete "
        "exclude= include= progress stats checksum human-readable times perms links partial max-size= "
        "min-size= ignore-existing existing quiet itemize-changes !: >last"
    ),
    "sdiff": (
        "i E Z b W B a l s t d w= I= ignore-case ignore-all-space ignore-blank-lines text left-column "
        "suppress-common-lines expand-tabs minimal width= strip-trailing-cr speed-large-files"
    ),
    "shuf": "n= e i= r z head-count= echo input-range= repeat",
    "sort": (
        "^o> ^output> b d f g h i M n R r V c C m s u z k= t= S= ignore-leading-blanks dictionary-order "
        "ignore-case numeric-sort general-numeric-sort human-numeric-sort month-sort random-sort reverse "
        "version-sort check? merge stable unique zero-terminated key= field-separator= buffer-size= parallel= "
        "debug -"
    ),
    "split": (
        "l= b= n= a= d x C= lines= bytes= number= suffix-length= numeric-suffixes? additional-suffix= verbose "
        ">prefix <2"
    ),
    "tar": (
        "c x t r u v z j J a k p m O S h W n l b= X= s f~ C~ exclude= strip-components= file~ directory~ gzip "
        "xz bzip2 zstd lzma create extract get list append update verbose keep-old-files preserve-permissions "
        "auto-compress to-stdout wildcards no-wildcards overwrite numeric-owner owner= group= mtime= sort= "
        "exclude-vcs no-same-owner no-same-permissions one-file-system dereference totals checkpoint? "
        "skip-old-files exclude-from="
    ),
    "tee": "a i append ignore-interrupts >all",
    "touch": "a c m h d= t= r= date= reference= time= no-create >kept",
    "tree": "a d f i l h s p u g D C n J X v r t L= I= P= noreport dirsfirst prune du filelimit: gitignore charset: .",
    "truncate": "c o s= r= size= reference= no-create >all",
    "uniq": (
        "c d u i z D f= s= w= count repeated unique ignore-case skip-fields= skip-chars= check-chars= group? "
        "zero-terminated all-repeated? >second <2 -"
    ),
    "unxz": _ZIPPERS,
    "unzip": "l v t q o n j x= d> p Z u",
    "wget": (
        "q c n v S k O>! T= t= U= quiet no-verbose continue server-response timeout= tries= header= "
        "user-agent= output-document>! spider! no-check-certificate max-redirect= wait= method= body-data= "
        "user= password= show-progress progress="
    ),
    "xxd": "p ps u b e r i C g= c= l= s= . >second <2",
    "xz": _ZIPPERS,
    "zcat": "*",
    "zip": "r q j u v 0 1 2 3 4 5 6 7 8 9 y x= i= D X recurse-paths quiet junk-paths exclude= >first @",
    "zstd": _ZIPPERS,
}
_FIND_VALUED = """
    name iname path ipath wholename iwholename regex iregex lname ilname type xtype size mtime atime ctime mmin amin
    cmin newer anewer cnewer newermt user group uid gid perm maxdepth mindepth samefile inum links printf regextype
    fstype used D
"""
_FIND_FLAGS = """
    H L P O1 O2 O3 print print0 ls prune quit empty true false readable writable executable depth d xdev mount follow
    daystart noleaf nouser nogroup not a and o or ignore_readdir_race warn nowarn
"""
FIND_VALUED = frozenset(f"-{name}" for name in _FIND_VALUED.split())
FIND_FLAGS = frozenset({"!", "(", ")", ",", *(f"-{name}" for name in _FIND_FLAGS.split())})
_COMPILER = re.compile(
    r"-W(?![lap],)[\w=+-]*|-O\w?|-g\w*|-(?:ansi|std=[\w+]+)|-[ILlDU].*|-[cESvwxs]|-f(?!plugin|dump|use-ld)[\w-]+|-f(?:visibility|sanitize|diagnostics-color|max-errors|lto|cf-protection|fp-contract|abi-version)=\w+|-m(?:arch|tune|cpu|fpu|abi|float-abi|cmodel|fpmath|branch-protection|stack-alignment|preferred-stack-boundary|macosx-version-min)=[\w.+-]+|-m(?:16|32|64|x32|thumb|arm)|-m(?:no-)?(?:sse[\d.]*[a-z]?|ssse3|avx[\w.]*|fma4?|f16c|bmi2?|aes|pclmul|popcnt|lzcnt|rdrnd|sha|sve2?|neon|red-zone|omit-leaf-frame-pointer|unaligned-access|outline-atomics|ms-bitfields|windows|console)|-MM?D?|-MP"
    r"|-pthread|-shared|-static|-pedantic(?:-errors)?|-pipe|-rdynamic|-nostdlib|-isystem|-include|-print-[\w-]+"
    r"|--version|-dumpversion"
)
COMPILERS = frozenset({"gcc", "g++", "cc", "c++", "clang", "clang++"})


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """What the words of its line say; options are spelled with their dashes."""

    flags: set[str] = field(default_factory=set[str])
    optional: set[str] = field(default_factory=set[str])
    valued: set[str] = field(default_factory=set[str])
    attached: set[str] = field(default_factory=set[str])
    written: set[str] = field(default_factory=set[str])
    paths: set[str] = field(default_factory=set[str])
    required: set[str] = field(default_factory=set[str])
    spelled: set[str] = field(default_factory=set[str])
    marks: set[str] = field(default_factory=set[str])

    @property
    def takes_value(self) -> set[str]:
        return self.valued | self.written | self.paths


def _read(line: str) -> ToolOptions:
    tool = ToolOptions()
    kinds = {"=": tool.valued, ">": tool.written, "~": tool.paths, "?": tool.optional, ":": tool.attached}
    for token in line.split():
        if token in (*"*#+@.-=", "--") or token[0] in "<>" or token[0] == "!":
            tool.marks.add(token)
            continue
        needed, spelled, token = token.endswith("!"), token[0] == "^", token.strip("!^")
        name = token.rstrip("=>~?:")
        option = f"-{name}" if len(name) == 1 else f"--{name}"
        kinds.get(token[-1], tool.flags).add(option)
        if needed:
            tool.required.add(option)
        if spelled:
            tool.spelled.add(option)
    return tool


TOOLS = {name: _read(line) for name, line in _LINES.items()}
TOOLS.update(
    dict.fromkeys(("pip3", *(f"pip3 {sub}" for sub in ("list", "show", "freeze", "check"))), TOOLS["pip list"])
)


def is_option_of_compiler(text: str) -> bool:
    return _COMPILER.fullmatch(text) is not None
