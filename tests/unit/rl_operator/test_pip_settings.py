"""The settings that uv takes over from pip."""

import pytest

from rl_operator.pip_settings import read_settings, uv_variables

LISTED = """\
:env:.find-links='/wheels'
global.cert='/etc/ssl/company.crt'
global.extra-index-url='\\nhttps://one.example/simple\\nhttps://two.example/simple'
global.find-links='/elsewhere'
global.index-url='https://mirror.example/simple'
install.index-url='https://pypi.example/simple'
list.format='columns'
"""


def test_variables_hold_over_files_and_install_over_global() -> None:
    settings = read_settings(LISTED)
    assert settings["find-links"] == "/wheels"
    assert settings["index-url"] == "https://pypi.example/simple"
    assert "format" not in settings


def test_a_company_index_holds_for_uv_too() -> None:
    assert uv_variables(read_settings(LISTED)) == {
        "SSL_CERT_FILE": "/etc/ssl/company.crt",
        "UV_DEFAULT_INDEX": "https://pypi.example/simple",
        "UV_FIND_LINKS": "/wheels",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


@pytest.mark.parametrize(("setting", "uv_does_it"), [("timeout", True), ("no-binary", False), ("trusted-host", False)])
def test_a_setting_without_a_counterpart_is_left_to_pip(setting: str, uv_does_it: bool) -> None:
    assert (uv_variables({setting: "30"}) is not None) == uv_does_it
