"""Random lines: soups of marks, ordinary lines with something put into them, and lines from a grammar of the shell."""

from __future__ import annotations

import random
from collections.abc import Callable

from unit.policy.commands.corpus import lines

# What a line is made of, wherever a reader may lose its way.
_MARKS = """
rm x|ls|echo|cat|'|"|`|$(|)|${|}|{|(|;|&|&&|\\|#|<<EOF⏎|EOF|⏎EOF⏎|<<'EOF'⏎|<<-EOF⏎|$((|))|((|[[|]]|if|then|fi|else
|for i in|do|done|case x in|esac|x)|;;|f()|f|function f|x=|$x|${x:-|x=(|<(|>(|<|>|2>&1|> o.txt|!|time|eval|bash -c|xargs
|find . -exec|{} \\;|env|a|=|'rm x'|"rm x"|*|~|$'|in|\\'|\\"|$|${x#|@|rm|<<<|while|until|-c|--|1|é
"""
_TRICKS = (
    *("PATH=. ", "export PATH=.;", "read PATH <<< .;", "> .bashrc", '> "$x.bashrc"', "x='a[$(rm x)]';", "$((x))"),
    *("xargs -I{} ", "timeout 5 ", "sed '1e rm x' ", "sort --compress-program=rm ", "set -- rm x;", '"$@"', "f() { "),
    *(
        "<<'ls' | (\nls\n",
        "<<'ls'",
        "\nls\nrm x\nls",
        "$\\\n(rm x)",
        "(\\\n",
        "\\\nrm x",
        "${x-$'\\''}",
        "$(cat <<'E'\nE)\nrm x\n",
    ),
    *(
        "printf '.%n' PATH;",
        "export TAPE;",
        "TAPE=.bashrc;",
        "tar c file;",
        "x=cIf; tar $x 'rm x' o.tar file",
        "sed 's/[",
    ),
    *("; }; f ", "trap 'rm x' EXIT;", "awk 'BEGIN{print 1}' ", "alias ls=rm;", "export ", "{rm,x}", "\\rm "),
)
_PIECES = (
    *_MARKS.replace("\n", "").replace("⏎", "\n").split("|"),
    *("\n", " ", "|", "||", "\t", "\\\n"),
    *_TRICKS,
)


def soup(chance: random.Random) -> str:
    return "".join(chance.choice(_PIECES) + chance.choice(["", "", " "]) for _ in range(chance.randint(2, 10)))


def mutation(chance: random.Random) -> str:
    letters = list(chance.choice(lines("ordinary")))
    for _ in range(chance.randint(1, 4)):
        place = chance.randint(0, len(letters))
        if chance.random() < 0.3:
            del letters[place : place + 1]
        else:
            letters[place:place] = chance.choice([*_PIECES, ";rm x;", "$(rm x)", "\nrm x\n"])
    return "".join(letters)


# `<name>` is one of that name's forms. Values that are code when they are evaluated are as likely as plain ones.
_FORMS = {
    "line": """
        <set>; <use> ¦ <set>; <use> ¦ <set>; <set>; <use> ¦ <use> ¦ <set> && <use> ¦ (<set>); <use> ¦
        for <var> in <value> <value>; do <use>; done ¦ if <test>; then <use>; fi ¦ <set>⏎<use> ¦
        while <test>; do <use>; break; done; <set> ¦ case <word> in <word>) <use>;; esac ¦ { <set>; <use>; } ¦
        <use> | while read -r <var>; do <use>; done ¦ bash -c '<plain>' ¦ <set>; bash -c '<plain>'
    """,
    "var": """
        v ¦ w ¦ i ¦ _ ¦ REPLY ¦ PATH ¦ x ¦ OPTARG ¦ MAPFILE ¦ SECONDS
    """,
    "value": """
        1 ¦ 5 ¦ 'a[$(rm x)]' ¦ 'rm x' ¦ -v ¦ --output=.bashrc ¦ .git ¦ src ¦ .bashrc ¦ a.txt ¦ '$(rm x)' ¦
        $(echo rm) ¦ '--checkpoint-action=exec=rm x' ¦ -exec ¦ v ¦ w ¦ $((1 + 1)) ¦ '-e1e rm x' ¦ *.txt
    """,
    "set": """
        <var>=<value> ¦ <var>=<value> ¦ <var>=<value> ¦ read -r <var> <<< <value> ¦ read <<< <value> ¦
        mapfile -t <var> <<< <value> ¦ export <var>=<value> ¦ set -- <value> <value> ¦ <var>=(<value> <value>) ¦
        readonly <var>=<value> ¦ : <value> ¦ true <value> ¦ printf -v <var> %s <value> ¦
        declare -i <var>=<value> ¦ unset <var> ¦ cd <value> ¦ pushd <value> ¦ <var>+=<value> ¦
        ((<var>=<number>)) ¦ let <var>=<value> ¦ echo <value> > <target> ¦ (( <number> ))
    """,
    "number": """
        <var> ¦ 1 ¦ $<var> ¦ <var> + 1 ¦ ${<var>} ¦ $1 ¦ ${#<var>} ¦ <var>++ ¦ <var>[0] ¦ $#
    """,
    "ref": """
        $<var> ¦ "$<var>" ¦ ${<var>} ¦ "${<var>}" ¦ ${<var>:-<value>} ¦ ${<var>:<number>} ¦ ${<var>#a} ¦
        ${<var>[0]} ¦ "${<var>[@]}" ¦ ${<var>[<number>]} ¦ $1 ¦ "$@" ¦ $((<number>)) ¦ ${<var>@P} ¦ ${!<var>}
    """,
    "word": """
        <value> ¦ <ref> ¦ <ref> ¦ a.txt ¦ ./<ref> ¦ '<plain>' ¦ $(<use>) ¦ src/<ref>
    """,
    "test": """
        [ <word> = <word> ] ¦ [ <word> <word> ] ¦ [ <word> ] ¦ [[ <word> -eq <number> ]] ¦ [[ -n <word> ]] ¦
        [[ <word> == <word> ]] ¦ test <word> -gt 1 ¦ [ -f <word> ] ¦ [ ! <word> ] ¦ [[ -v <word> ]] ¦
        [ <word> -lt 3 ] ¦ grep -q <word> file ¦ (( <number> ))
    """,
    "target": """
        o.txt ¦ <ref> ¦ "<value>" ¦ <value> ¦ src/<value> ¦ "$<var>.txt" ¦ .git/config ¦ /tmp/o.txt ¦ &2 ¦
        config ¦ src/../<value> ¦ ~/<value>
    """,
    "use": """
        echo <word> ¦ ls <word> ¦ cat <word> > <target> ¦ <test> ¦ sort <word> ¦ sort -- <word> ¦ git log <word> ¦
        git status <word> ¦ find . -maxdepth 0 <word> ¦ find . -maxdepth 0 -exec <plain> {} \\; ¦
        tar cf o.tar <word> ¦ sed <word> file ¦ sed -n 1p <word> ¦ sed -i s/a/b/ <word> ¦ awk <word> file ¦
        echo <word> | xargs <plain> ¦ env <word> ls ¦ timeout <word> ls ¦ nice <word> ls ¦ cp file <target> ¦
        mv <word> <target> ¦ tee <target> ¦ <word> x ¦ printf <word> a ¦ echo $((<number>)) ¦
        echo ${PWD:<number>} ¦ cd <word> ¦ uniq file <word> ¦ command <plain> ¦ exec <plain> ¦ eval <word> ¦
        ln -s <word> <target> ¦ echo a >> <target> ¦ jobs <word> rm x ¦ trap <word> EXIT ¦ wait <word> ¦
        read <word> < file ¦ touch <target> ¦ git -C <word> status ¦ date <word>
    """,
    "plain": """
        ls ¦ rm x ¦ cat file ¦ echo hi ¦ env rm x ¦ git status ¦ sh -c ls ¦ echo $((v)) ¦ [ -n a ] ¦ xargs ls
    """,
}
_GRAMMAR = {name: [form.strip() for form in forms.split("¦")] for name, forms in _FORMS.items()}


def sentence(chance: random.Random, name: str = "line", depth: int = 0) -> str:
    """From the grammar; deep inside only plain words follow."""
    form = chance.choice(_GRAMMAR["plain" if depth > 5 and name in ("use", "line") else name])
    parts = form.replace("⏎", "\n").split("<")
    made = parts[0]
    for part in parts[1:]:
        inner, closes, rest = part.partition(">")
        made += sentence(chance, inner, depth + 1) + rest if closes and inner in _GRAMMAR else f"<{part}"
    return made


MAKERS: tuple[Callable[[random.Random], str], ...] = (soup, mutation, sentence)
