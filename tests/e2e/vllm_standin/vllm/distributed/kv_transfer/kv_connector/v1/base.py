# SPDX-License-Identifier: Apache-2.0
"""Names and calls of vLLM 0.32's connector interface; what vLLM does around them is in fake_vllm_engine.py."""

import enum


class KVConnectorRole(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


class KVConnectorMetadata:
    pass


class KVConnectorHandshakeMetadata:
    pass


class KVConnectorBase_V1:  # noqa: N801: vLLM's name
    def __init__(self, vllm_config, role, kv_cache_config=None):
        self._role, self._connector_metadata = role, None

    def bind_connector_metadata(self, metadata):
        self._connector_metadata = metadata

    def clear_connector_metadata(self):
        self._connector_metadata = None

    def _get_connector_metadata(self):
        assert self._connector_metadata is not None
        return self._connector_metadata
