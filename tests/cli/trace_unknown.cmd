trace burn
