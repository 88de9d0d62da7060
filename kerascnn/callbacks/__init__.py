"""Callbacks: your own code at the beginnings and ends of training, epochs and batches."""

from kerascnn.callbacks.callback import Callback
from kerascnn.callbacks.callback_list import CallbackList
from kerascnn.callbacks.early_stopping import EarlyStopping
from kerascnn.callbacks.history import History
from kerascnn.callbacks.learning_rate_scheduler import LearningRateScheduler
from kerascnn.callbacks.model_checkpoint import ModelCheckpoint
from kerascnn.callbacks.progbar_logger import ProgbarLogger
from kerascnn.callbacks.terminate_on_nan import TerminateOnNaN

__all__ = [
    "Callback",
    "CallbackList",
    "EarlyStopping",
    "History",
    "LearningRateScheduler",
    "ModelCheckpoint",
    "ProgbarLogger",
    "TerminateOnNaN",
]
