"""The click group of commands. The module of a command is imported only to run it or to show its help."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from bowstring import __version__
from bowstring.cli.error_messages import EXIT_INTERRUPTED, ErrorOptions, format_error_line
from bowstring.cli.help_text import examples
from bowstring.cli.storage_options import storage_option

_MODULES = {"tail": "head", "cat": "head", "schema": "info", "count": "info"}
# Each command is the object of that name in the module bowstring.cli.<name>, or in the module of `_MODULES`; the text
# is for the help of the group.
COMMANDS: dict[str, str] = {
    "info": "Show the contents of files: schema, rows, batches, bytes per column.",
    "schema": "Show the columns and their types.",
    "count": "Write the number of rows.",
    "validate": "List all errors of an Arrow file or stream, or of a folder that Spark wrote.",
    "head": "Show the first rows, as a table, JSON lines or CSV.",
    "tail": "Show the last rows, as a table, JSON lines or CSV.",
    "cat": "Write all rows, as a table, JSON lines or CSV.",
    "anatomy": "Draw a file or stream to scale, as an HTML page that explains every byte.",
    "diff": "Show the differences between two files, in any format.",
    "convert": "Convert between Arrow files, streams, Parquet, CSV and JSON.",
    "concat": "Join files and streams without decoding them.",
    "vacuum": "Remove the files of a folder that no commit lists.",
    "recover": "Save the intact batches of a damaged file or stream.",
    "serve": "Serve files to other processes until a signal.",
    "publish": "Keep the rows of a file in memory for other processes.",
    "ls": "List the published data sets of this host.",
    "fetch": "Save a served or published data set as Arrow, Parquet, CSV or JSON.",
    "unpublish": "Free the memory of published data sets, for all processes.",
    "doctor": "Check this machine and environment for what Bowstring uses.",
    "trace": "Show the recorded messages between servers and clients.",
}


def _set_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    options = ctx.ensure_object(ErrorOptions)
    options.debug = options.debug or value


debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_set_debug,
    help="Show the traceback of a failure (or set BOWSTRING_DEBUG).",
)


def _add_common_options(command: click.Command) -> None:
    """Add `--debug` to a command, and `--storage-option` if it takes a path."""
    if all(param.name != "debug" for param in command.params):
        if any(isinstance(param.type, click.Path) and param.type.allow_dash for param in command.params):
            storage_option(command)
        debug_option(command)


class LazyGroup(click.Group):
    """A group that imports a command only to run it or to show its help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Accept `help COMMAND` and `head -5` for `COMMAND --help` and `head -n 5`."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        elif args[:1] in (["head"], ["tail"]):
            rows = re.compile(r"-\d+")  # but -5 after -n is a number out of range
            args = [
                f"-n{argument[1:]}" if rows.fullmatch(argument) and previous not in ("-n", "--rows") else argument
                for previous, argument in zip(["", *args], args, strict=False)
            ]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if the name is unknown."""
        if cmd_name not in COMMANDS:
            return None
        ctx.obj.command = f"bowstring {cmd_name}"
        command = getattr(import_module(f"bowstring.cli.{_MODULES.get(cmd_name, cmd_name)}"), cmd_name)
        assert isinstance(command, click.Command)
        _add_common_options(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without importing them, and options."""
        commands = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; suggest the closest one for an unknown name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            matches = get_close_matches(args[0], COMMANDS, 1)
            if matches:
                raise click.UsageError(f"no such command '{args[0]}'; did you mean {matches[0]}?", ctx) from None
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands without importing them."""
        if COMMANDS:
            with formatter.section("Commands"):
                formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog=examples(
        "bowstring info flights.parquet",
        "bowstring convert flights.csv flights.arrow",
        "bowstring publish flights.arrow --name flights",
        "bowstring head --help",
        'eval "$(_BOWSTRING_COMPLETE=bash_source bowstring)"   # completion; also zsh_source, fish_source',
    ),
)
@click.version_option(__version__, "-V", "--version", prog_name="bowstring")
@debug_option
@click.pass_context
def root_command(ctx: click.Context) -> None:
    """Inspect, check, convert, repair and share tables: Arrow files and streams, Parquet, CSV and JSON.

    Publish a file to the other processes of a host, and list and read what Spark and others have published.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run_command_line(arguments: Sequence[str] | None, options: ErrorOptions) -> int:
    """Run the command line and return its exit status. Errors of a command are propagated."""
    try:
        # Not standalone: click would exit with its own status for an OSError.
        status = root_command.main(
            None if arguments is None else list(arguments), prog_name="bowstring", standalone_mode=False, obj=options
        )
    except click.ClickException as error:
        click.echo(_format_usage_error(error, options), err=True)
        return error.exit_code
    except click.Abort:
        return EXIT_INTERRUPTED
    return status if isinstance(status, int) else 0


def _format_usage_error(error: click.ClickException, options: ErrorOptions) -> str:
    """Format a usage error as one line with a hint; click would print four."""
    message = error.format_message().strip().removesuffix(".")
    if isinstance(error, click.NoSuchOption) and _is_option_of_convert(error.option_name):
        message = f"no such option {error.option_name!r}: bowstring convert has it"
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    command = options.command if ctx is None else ctx.command_path
    return format_error_line(message[:1].lower() + message[1:], f"{command} --help shows how")


def _is_option_of_convert(name: str) -> bool:
    """Whether `bowstring convert` has an option, such as those for reading CSV, which no other command has."""
    command = root_command.get_command(click.Context(root_command, obj=ErrorOptions()), "convert")
    return command is not None and any(name in param.opts for param in command.params)
