"""The keys and certificates of one cluster, and the kubeconfigs made from them.

Every part has an identity of its own with just the rights that Kubernetes' and Agent Sandbox's own roles give it.
Certificates are valid from an hour before they are made, so that a client whose clock is behind can be tested.
"""

import base64
import datetime
import ipaddress
import json

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lib.network import API_ADDRESS, API_URL, NODE_ADDRESS, NODE_NAME

CONTROLLER_NAMESPACE = "agent-sandbox-system"
# file name: (user, group, names and addresses it serves under)
IDENTITIES = {
    "apiserver": (
        "kube-apiserver",
        None,
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", API_ADDRESS, "127.0.0.1"],
    ),
    "apiserver-kubelet-client": ("kube-apiserver-kubelet-client", "system:masters", []),
    "kubelet": (f"system:node:{NODE_NAME}", "system:nodes", [NODE_NAME, NODE_ADDRESS]),
    "admin": ("admin", "system:masters", []),
    "controller-manager": ("system:kube-controller-manager", None, []),
    "scheduler": ("system:kube-scheduler", None, []),
    "agent-sandbox-controller": (
        f"system:serviceaccount:{CONTROLLER_NAMESPACE}:agent-sandbox-controller",
        "system:serviceaccounts",
        [],
    ),
}
WITH_KUBECONFIG = ("admin", "kubelet", "controller-manager", "scheduler", "agent-sandbox-controller")


def _pem_key(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


def _name(user, group):
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return x509.Name(parts + [x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _alternative(name):
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Authority:
    """A certificate authority that lives as long as its cluster."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = _name("cluster-authority", None)
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        self.certificate = (
            self._builder(name, name, self.key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self.key, hashes.SHA256())
        )

    @staticmethod
    def _builder(subject, issuer, key):
        now = datetime.datetime.utcnow()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=365))
        )

    def issue(self, user, group=None, served=()):
        """A new key and a certificate for it, both as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if served else [])
        builder = self._builder(_name(user, group), self.certificate.subject, key).add_extension(
            x509.ExtendedKeyUsage(usages), critical=False
        )
        if served:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(name) for name in served]), critical=False
            )
        return _pem_key(key), _pem(builder.sign(self.key, hashes.SHA256()))


def kubeconfig(authority, key, certificate):
    """A kubeconfig with everything in it; JSON is YAML."""

    def encode(value):
        return base64.b64encode(value).decode()

    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "cluster", "cluster": {"server": API_URL, "certificate-authority-data": encode(authority)}}
            ],
            "users": [
                {
                    "name": "user",
                    "user": {"client-key-data": encode(key), "client-certificate-data": encode(certificate)},
                }
            ],
            "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": "user"}}],
            "current-context": "cluster",
        },
        indent=1,
    )


def _write(path, content):
    path.touch(mode=0o600)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def make(folder):
    """Fills folder/pki and folder/NAME.kubeconfig."""
    pki = folder / "pki"
    pki.mkdir(mode=0o700)
    authority = Authority()
    authority_pem = _pem(authority.certificate)
    _write(pki / "ca.crt", authority_pem)
    _write(pki / "ca.key", _pem_key(authority.key))
    accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write(pki / "accounts.key", _pem_key(accounts))
    _write(
        pki / "accounts.pub",
        accounts.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    )
    for name, (user, group, served) in IDENTITIES.items():
        key, certificate = authority.issue(user, group, served)
        _write(pki / f"{name}.key", key)
        _write(pki / f"{name}.crt", certificate)
        if name in WITH_KUBECONFIG:
            _write(folder / f"{name}.kubeconfig", kubeconfig(authority_pem, key, certificate))
