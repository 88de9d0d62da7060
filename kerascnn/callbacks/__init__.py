"""Callbacks: your own code at the beginnings and ends of training, epochs and batches."""

from kerascnn.callbacks.backup_and_restore import BackupAndRestore
from kerascnn.callbacks.callback import Callback
from kerascnn.callbacks.callback_list import CallbackList
from kerascnn.callbacks.csv_logger import CSVLogger
from kerascnn.callbacks.early_stopping import EarlyStopping
from kerascnn.callbacks.history import History
from kerascnn.callbacks.lambda_callback import LambdaCallback
from kerascnn.callbacks.learning_rate_scheduler import LearningRateScheduler
from kerascnn.callbacks.model_checkpoint import ModelCheckpoint
from kerascnn.callbacks.progbar_logger import ProgbarLogger
from kerascnn.callbacks.reduce_lr_on_plateau import ReduceLROnPlateau
from kerascnn.callbacks.remote_monitor import RemoteMonitor
from kerascnn.callbacks.swap_ema_weights import SwapEMAWeights
from kerascnn.callbacks.tensorboard import TensorBoard
from kerascnn.callbacks.terminate_on_nan import TerminateOnNaN

__all__ = [
    "BackupAndRestore",
    "CSVLogger",
    "Callback",
    "CallbackList",
    "EarlyStopping",
    "History",
    "LambdaCallback",
    "LearningRateScheduler",
    "ModelCheckpoint",
    "ProgbarLogger",
    "ReduceLROnPlateau",
    "RemoteMonitor",
    "SwapEMAWeights",
    "TensorBoard",
    "TerminateOnNaN",
]
