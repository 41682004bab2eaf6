"""Writes images as OCI archives, the form in which containerd imports them."""

import hashlib
import io
import json
import tarfile


def _file(archive, name, content):
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = 0o644
    archive.addfile(entry, io.BytesIO(content))


class _Blobs:
    """The blobs of an archive, each under its own digest."""

    def __init__(self, archive):
        self.archive = archive

    def add(self, content, kind):
        """Adds a blob and answers its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        _file(self.archive, f"blobs/sha256/{digest}", content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    def add_document(self, content, kind):
        """The same for a JSON document."""
        return self.add(json.dumps(content, sort_keys=True).encode(), kind)


def write_image(path, reference, layer, config):
    """Writes an image of one layer.

    layer: the bytes of a tar archive, uncompressed. config: as in the OCI image configuration's `config`.
    """
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        blobs = _Blobs(archive)
        layer_entry = blobs.add(layer, "application/vnd.oci.image.layer.v1.tar")
        config_entry = blobs.add_document(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": config,
                "rootfs": {"type": "layers", "diff_ids": [layer_entry["digest"]]},
            },
            "application/vnd.oci.image.config.v1+json",
        )
        manifest_entry = blobs.add_document(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": config_entry,
                "layers": [layer_entry],
            },
            "application/vnd.oci.image.manifest.v1+json",
        )
        manifest_entry["annotations"] = {"io.containerd.image.name": reference}
        index = {"schemaVersion": 2, "manifests": [manifest_entry]}
        _file(archive, "index.json", json.dumps(index).encode())
        _file(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')


def layer_of(entries):
    """A layer of files (name, mode, content), folders (name, mode, None) and links (name, None, target)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, mode, content in entries:
            entry = tarfile.TarInfo(name)
            if mode is None:
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
            elif content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, mode
                archive.addfile(entry)
            else:
                entry.size, entry.mode = len(content), mode
                archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
