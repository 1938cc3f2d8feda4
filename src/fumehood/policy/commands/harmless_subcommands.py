"""Sub-commands of programs without tables of all their options, by which these run neither code nor plugins.

Any other one may: an image, a file or an argument says what it runs, it writes files, or it is the name of a plugin or
an alias. After a colon stand the sub-commands of a sub-command, as patterns: others of its own are not harmless.
`tools` has lines for those that write files or take code.
"""

from __future__ import annotations

from fumehood.policy.commands.patterns import matches


def _read(text: str) -> dict[str, frozenset[str]]:
    tokens = (token.partition(":") for token in text.split())
    return {name: frozenset(filter(None, within.split(","))) for name, _, within in tokens}


HARMLESS_SUBCOMMANDS = {
    # Not what gives an image or a container another name or content, since a rule may let that one be run.
    "docker": _read(
        """
        ps images logs inspect info version stats top events diff history port search rm rmi stop kill pause unpause
        wait pull push network:inspect,ls,list,prune,rm volume:inspect,ls,list,prune,rm system:df,events,info,prune
        """
    ),
    "podman": _read(""),  # it takes `--runtime` and `--conmon` behind any of them
    "helm": _read(
        """
        list ls status history version lint get:all,hooks,manifest,metadata,notes,values search:hub,repo
        repo:list,update
        """
    ),
    "uv": _read("help cache:dir,size"),
    "gh": _read(
        """
        api status auth:status cache:list,delete gist:list,view,delete org:list secret:list release:list,view
        issue:list,view,status,create,comment,edit,close,reopen,delete,lock,unlock,pin,unpin,transfer
        label:list,create,edit,delete pr:list,view,status,diff,checks,comment,edit,ready,review,reopen,lock,unlock
        project:list,view,field-list,item-list repo:list,view run:list,view,watch,cancel,rerun,delete
        search:code,commits,issues,prs,repos workflow:list,view,run,enable,disable
        """
    ),
    "systemctl": _read(
        """
        status show list-units list-unit-files list-timers list-sockets list-jobs list-dependencies is-active is-enabled
        is-failed is-system-running get-default stop disable mask daemon-reload reset-failed
        """
    ),
    "brew": _read("config doctor leaves update"),
    "aws": _read(
        """
        cloudformation:describe-*,list-*,get-template,validate-template
        cloudwatch:describe-*,list-*,get-metric-data,get-metric-statistics
        dynamodb:describe-*,list-*,get-item,query,scan ec2:describe-* ecr:describe-*,list-*,get-login-password
        iam:list-*,get-user,get-role,get-policy,get-role-policy kms:describe-*,list-*
        lambda:list-*,get-function,get-function-configuration,get-policy
        logs:describe-*,tail,filter-log-events,get-log-events,start-query,get-query-results rds:describe-*
        route53:list-* s3:ls,presign s3api:list-*,head-object,head-bucket,get-bucket-* sns:list-*
        sqs:list-*,get-queue-url,get-queue-attributes sts:get-caller-identity
        """
    ),
    "gcloud": _read(
        """
        info version auth:list functions:list,describe logging:read,tail projects:list,describe services:list
        storage:ls,cat,du
        """
    ),
}


def has_subcommands(name: str, subcommand: str) -> bool:
    """Whether the sub-command has some of its own, which have to be known."""
    return bool(HARMLESS_SUBCOMMANDS.get(name, {}).get(subcommand))


def is_harmless(name: str, subcommand: str, following: str | None) -> bool:
    within = HARMLESS_SUBCOMMANDS.get(name, {}).get(subcommand)
    if within is None:
        return False
    return not within or any(matches(pattern, following or "") for pattern in within)
