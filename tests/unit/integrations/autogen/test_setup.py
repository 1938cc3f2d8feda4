"""Functions of the caller's, as the source of a module and as stubs."""

from __future__ import annotations

import pytest
from autogen_core.code_executor import Alias, FunctionWithRequirements, ImportFromModule, with_requirements

from fumehood import Policy
from fumehood.integrations.autogen import OptionError, SandboxCodeExecutor
from fumehood.integrations.autogen.setup import module_source


def add_two(number: int) -> int:
    """Two more."""
    return number + 2


@with_requirements(
    python_packages=["pandas"],
    global_imports=["math", Alias("pandas", "pd"), ImportFromModule("os", ("path", Alias("sep", "slash")))],
)
def root(number: float) -> float:
    return math.sqrt(number)  # type: ignore[name-defined]  # noqa: F821


def test_a_module_has_imports_and_functions_without_decorators() -> None:
    text = FunctionWithRequirements.from_str("def one() -> int:\n    return 1\n")
    source = module_source([add_two, root, text])
    assert source.startswith("import math\nimport pandas as pd\nfrom os import path, sep as slash\n")
    assert "@" not in source
    for line in ("def add_two(number: int) -> int:", "def root(number: float) -> float:", "def one() -> int:"):
        assert line in source.splitlines()
    compile(source, "functions.py", "exec")


def test_a_function_without_source_is_refused() -> None:
    for function in (len, lambda: 1):
        with pytest.raises(OptionError, match="functions: the source of"):
            SandboxCodeExecutor(functions=[function])


def test_packages_of_functions_are_installed_by_the_policy() -> None:
    assert SandboxCodeExecutor(functions=[root]).policy.environment.packages == ("pandas",)
    policy = Policy(environment={"packages": ["pandas"]})
    assert SandboxCodeExecutor(functions=[root], policy=policy).policy == policy
    with pytest.raises(OptionError, match="functions: need 'pandas'"):
        SandboxCodeExecutor(functions=[root], policy=Policy())


def test_a_model_is_told_about_functions() -> None:
    told = SandboxCodeExecutor(functions=[add_two], functions_module="own").format_functions_for_prompt()
    assert "`own`" in told
    assert told.endswith('def add_two(number: \'int\') -> \'int\':\n    """Two more."""\n    ...')
