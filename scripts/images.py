"""Build the images, without Docker: ``python -m scripts.images [NAME ...]``; see docs/images.md."""

import time
from pathlib import Path

import click

from runtimes.images import build, image_names, parts


@click.command()
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(list(image_names.images())),
    help="Build this image only; may be repeated.",
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("var/images"), show_default=True)
@click.option(
    "--layers", "layers_folder", type=click.Path(path_type=Path), help="Folder of layers, instead of OUT/layers."
)
@click.option(
    "--prefix",
    default=image_names.PREFIX,
    show_default=True,
    help="Prefix of image names; may contain a registry's host.",
)
@click.option(
    "--gzip", "compressed", is_flag=True, help="Compress layers: half the size, but slower to build and to import."
)
@click.option("--tags", is_flag=True, help="Only print the names of the images.")
def main(
    only: tuple[str, ...], out: Path, layers_folder: Path | None, prefix: str, compressed: bool, tags: bool
) -> None:
    """Write OCI archives for `ctr images import`, `docker load` or skopeo, with bills of materials (SBOM)."""
    images = [image_names.images()[name] for name in only or image_names.images()]
    if tags:
        for image in images:
            click.echo(f"{prefix}{image.name}:{image_names.tag(image, parts.lock(image))}")
        return
    for image in images:
        began = time.monotonic()
        try:
            built = build.build(image, out, kept=layers_folder, prefix=prefix, packed=compressed)
        except build.CannotBuild as error:
            raise click.ClickException(str(error)) from None
        outcome = f"built in {time.monotonic() - began:.0f} s" if built.fresh else "unchanged"
        click.echo(f"{built.reference}  {built.size / 1e6:.0f} MB ({', '.join(built.layers)})  {outcome}")


if __name__ == "__main__":
    main()
